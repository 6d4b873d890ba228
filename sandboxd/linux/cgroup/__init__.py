"""Limits by cgroup: the tree, one cgroup for each command."""
