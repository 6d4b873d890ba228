"""Our init in a sandbox of the server, and the wire to it over the API of execd."""
