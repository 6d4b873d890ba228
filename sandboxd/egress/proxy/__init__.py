"""The proxy of a sandbox: HTTP CONNECT and SOCKS5, and the variables that name it."""
