"""Labs of real machines, described by an inventory file."""
