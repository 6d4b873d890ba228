"""Refused accesses to the smallest manifest that would allow them."""
