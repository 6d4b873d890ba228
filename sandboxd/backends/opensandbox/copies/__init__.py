"""Granted folders as copies: packed and sent before a command, fetched and applied after it."""
