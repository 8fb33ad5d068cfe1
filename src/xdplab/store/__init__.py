"""The only writer of results: run directories, the journal, the tables derived from it."""
