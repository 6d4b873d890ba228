"""What the tests share: a real daemon, a raw client on a socket, a look at /proc."""
