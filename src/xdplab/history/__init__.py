"""A plug-in, found by name: the values of many runs as one table over time, derived from the runs at any time."""
