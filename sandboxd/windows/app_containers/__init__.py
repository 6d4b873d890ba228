"""AppContainers: profiles, capabilities, and the check of a process in one."""
