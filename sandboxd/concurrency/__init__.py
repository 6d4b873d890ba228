"""Locks, threads and cached facts beside the event loop."""
