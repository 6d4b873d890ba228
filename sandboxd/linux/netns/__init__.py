"""Sockets made in a sandbox's network namespace and handed to the daemon."""
