"""What a port can do with XDP: each thing is tried, beside what the kernel announces of it."""
