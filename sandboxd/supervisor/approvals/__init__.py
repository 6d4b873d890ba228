"""Approvals: questions that wait for a decision, and grants that were given for longer."""
