"""Hints for commands that fail in a sandbox, or do only a part of their work."""
