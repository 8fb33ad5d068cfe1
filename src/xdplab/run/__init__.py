"""What all kinds of run share: directory, journal, order, resume, retries, several labs, progress. No XDP in here."""
