"""Commands as processes of Windows: how they are made, how they ended."""
