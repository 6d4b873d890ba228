"""Executions and sandboxes: who runs what, how it ends, and that nothing outlives its owner."""
