"""The protocol: listening, checking peers, frames in and out, and the handlers of methods."""
