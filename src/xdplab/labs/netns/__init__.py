"""Labs of two network namespaces on this machine."""
