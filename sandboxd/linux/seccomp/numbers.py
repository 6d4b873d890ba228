"""Numbers of system calls that an older libseccomp does not know by name.

libseccomp 2.5 ends at Linux 5.17. From number 424 on x86-64 and arm64 share one table, so a
single column serves both. Names that the installed library knows never get here.
"""

from __future__ import annotations

from types import MappingProxyType

NEW_CALLS = MappingProxyType(
    {
        # x86-64 only; nothing has these numbers on arm64.
        "uretprobe": 335,
        "uprobe": 336,
        "landlock_create_ruleset": 444,
        "landlock_add_rule": 445,
        "landlock_restrict_self": 446,
        "memfd_secret": 447,
        "process_mrelease": 448,
        "futex_waitv": 449,
        "set_mempolicy_home_node": 450,
        "cachestat": 451,
        "fchmodat2": 452,
        "map_shadow_stack": 453,
        "futex_wake": 454,
        "futex_wait": 455,
        "futex_requeue": 456,
        "statmount": 457,
        "listmount": 458,
        "lsm_get_self_attr": 459,
        "lsm_set_self_attr": 460,
        "lsm_list_modules": 461,
        "mseal": 462,
        "setxattrat": 463,
        "getxattrat": 464,
        "listxattrat": 465,
        "removexattrat": 466,
        "open_tree_attr": 467,
        "file_getattr": 468,
        "file_setattr": 469,
    }
)

# Calls of kernels yet to come. Two spans of the table's usual growth (about five a release).
FUTURE_CALLS = range(470, 540)
