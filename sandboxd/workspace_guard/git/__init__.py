"""Judges git dirs: their files are read as data before and after a command."""
