"""Frames lost, and time dark, when an XDP program is attached, replaced or detached, and when its mode changes."""
