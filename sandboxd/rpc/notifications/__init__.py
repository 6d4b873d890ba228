"""What the daemon sends unasked: to one request, a session, approvers."""
