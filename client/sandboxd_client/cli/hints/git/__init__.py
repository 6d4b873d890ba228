"""Hints for git commands."""
