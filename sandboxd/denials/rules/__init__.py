"""One module for each kind of denial: when a message or report is caused by the sandbox."""
