"""What differs from Windows on Linux and macOS."""
