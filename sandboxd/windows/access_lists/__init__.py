"""Access-control entries of a sandbox: planned, journalled, written and read back."""
