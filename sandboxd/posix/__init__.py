"""What POSIX systems share and Linux does not need: children by SIGCHLD, terminals."""
