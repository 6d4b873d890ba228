"""Containers that run one command over the engine's attach API."""
