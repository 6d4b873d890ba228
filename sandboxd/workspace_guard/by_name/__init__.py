"""The guard by path names instead of descriptors, for Windows."""
