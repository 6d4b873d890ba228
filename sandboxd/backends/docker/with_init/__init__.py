"""Containers whose entry point is our init."""
