"""Changes of folders, and renames in folders that others may exchange."""
