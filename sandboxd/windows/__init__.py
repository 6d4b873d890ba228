"""Primitives of Windows: jobs, pipes, tokens, access lists, AppContainers. No policy."""
