"""What differs from POSIX systems on Windows."""
