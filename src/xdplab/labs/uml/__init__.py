"""The lab in a user-mode Linux: times of the BPF interpreter and of kernel modules, without root."""
