"""The daemon's ends of a command's pipes: descriptors on POSIX systems, handles on Windows."""
