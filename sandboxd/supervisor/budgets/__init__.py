"""What sessions may use: limits in a tree, the user's day, and warnings before a limit."""
