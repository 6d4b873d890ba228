"""The gate for allow_hosts traffic: a network in which only the named hosts exist."""
