"""HTTP/1: heads, the relay of requests, the check of Host, answers."""
