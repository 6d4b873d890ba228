"""DNS: messages, the responder inside a sandbox, the resolver outside."""
