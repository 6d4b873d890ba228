"""Files that the daemon makes and mounts into sandboxes: /etc, empty files, /tmp."""
