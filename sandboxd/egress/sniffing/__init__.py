"""Detect the protocol of a connection by its first bytes, and check it."""
