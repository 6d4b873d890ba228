"""The bytes and descriptors of a connection, and the socket that accepts it."""
