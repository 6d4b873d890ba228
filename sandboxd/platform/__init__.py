"""What differs between operating systems, one file each behind one function."""
