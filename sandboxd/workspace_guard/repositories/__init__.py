"""Repositories that a command made, or could have changed."""
