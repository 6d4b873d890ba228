"""The input and output of a command."""
