"""Which commit, or which kernel, changed what a packet costs: a plug-in over `cost` and `race`."""
