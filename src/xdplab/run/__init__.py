"""A run of anything: its directory and journal, order, resume, retries, several labs, progress. Knows no XDP."""
