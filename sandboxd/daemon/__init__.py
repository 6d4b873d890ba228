"""The daemon's assembly: what all systems share, and what each of them adds."""
