"""The daemon's config: its keys, how it is read, whether its file has changed."""
