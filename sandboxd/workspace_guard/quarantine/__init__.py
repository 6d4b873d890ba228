"""Move what a command made aside, into the kept folder."""
