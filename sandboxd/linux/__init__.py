"""What the Linux backends share: the init, Landlock rulesets, seccomp programs, cgroups."""
