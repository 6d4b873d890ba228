"""Executions and sandboxes: starting, controlling and ending them. Nothing outlives its owner."""
