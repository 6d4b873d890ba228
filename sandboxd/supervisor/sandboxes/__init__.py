"""Sandboxes that wait for a command (pool) or outlive one (persistent)."""
