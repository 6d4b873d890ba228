"""The socket: listening, who may connect, frames in and out, and the table of methods."""
