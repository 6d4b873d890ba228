"""The params and results of each method, one module for each group of methods."""
