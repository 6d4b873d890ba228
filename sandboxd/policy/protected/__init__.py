"""Files that would run later outside the sandbox, and how they stay unchanged."""
