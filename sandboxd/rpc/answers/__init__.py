"""Answers as JSON: their encoding, large ones, and paths as Windows has them."""
