"""The gate that allow_hosts traffic goes through: a network in which only the named hosts exist."""
