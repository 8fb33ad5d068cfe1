"""Figures: a view of the trials makes a marks table, and the marks table is drawn."""
