"""Parsers: one tool's text in, typed rows out. Pure: no file, no host, no other exception than FormatError."""
