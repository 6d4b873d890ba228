"""Where clouds hand out the credentials of the machine to each program that asks."""

from __future__ import annotations

import ipaddress

# Link-local, or addresses that look public or are unusual.
ADDRESSES = frozenset(
    map(ipaddress.ip_address, ("168.63.129.16", "169.254.169.254", "100.100.100.200",
                               "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)  # fmt: skip
NAMES = frozenset(
    ("metadata", "metadata.google.internal", "metadata.internal", "instance-data",
     "instance-data.ec2.internal", "metadata.azure.com", "metadata.tencentyun.com")
)  # fmt: skip
