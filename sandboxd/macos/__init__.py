"""macOS's primitives: profiles for sandbox-exec, launcher, census, launchd, peers. No policy.

None of this has been verified on a real macOS yet. What can run elsewhere is pure or takes its
system calls as arguments.
"""
