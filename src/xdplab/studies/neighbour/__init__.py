"""What a program costs the host that goes on serving: TCP through the measured port, with and without it."""
