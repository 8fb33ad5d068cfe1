"""What labs in guests of this machine have in common."""
