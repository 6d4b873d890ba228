"""Watch protected paths while a command runs."""
