"""Protected files of writable folders: watched while a command runs, judged and undone after it."""
