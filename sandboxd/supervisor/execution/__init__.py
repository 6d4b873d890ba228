"""One command from its request to its result."""
