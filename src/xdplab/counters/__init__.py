"""Counters of both hosts: read at rest around the window, recorded through it, derived from the files they leave."""
