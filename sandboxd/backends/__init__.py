"""One module or package for each backend, all behind `interface.Backend`."""
