"""What hosts, their network cards and their kernels can do, what is missing, and the remedies."""
