"""Job objects: the limits and the end of a process tree."""
