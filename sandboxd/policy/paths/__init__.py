"""Paths of the host: canonical form, containment, symlinks, recorded lookups."""
