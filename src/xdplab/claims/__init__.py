"""A plug-in, found by name: sentences about a run's points that can be false, and whether its trials say they are."""
