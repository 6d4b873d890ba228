"""Turn a request into a `Plan`. Everything that can be refused is refused here.

Nothing in this package starts a process or uses a backend.
"""
