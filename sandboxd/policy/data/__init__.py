"""Lists with reasons: secrets, protected names, shared platforms, system folders."""
