"""From what a client asks for to a `Plan`: everything that can be refused is refused here.

Nothing in this package starts a process or knows a backend.
"""
