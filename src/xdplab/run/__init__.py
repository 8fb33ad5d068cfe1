"""Any run, whatever it measures: directory, journal, order, resume, retries, several labs, progress. No XDP in here."""
