"""Identify the peer of a connection, and refuse those that may not use the daemon."""
