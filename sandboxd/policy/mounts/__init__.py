"""What is mounted where in a sandbox: grants, masks, pins, caches, toolchains."""
