"""`python -m sandboxd.windows.prepare_nul`: let AppContainers open NUL, until Windows ends.

For an administrator; the daemon itself never does this. Only entries are added.
"""

from __future__ import annotations

import sys

import pywintypes
import win32api
import win32security

from sandboxd.windows.app_containers.host_access import nul_dacl, open_nul
from sandboxd.windows.app_containers.preparation import NUL_MASK, PACKAGES

assert sys.platform == "win32"

_READ_CONTROL, _WRITE_DAC = 0x20000, 0x40000


def main() -> int:
    try:
        handle = open_nul(_READ_CONTROL | _WRITE_DAC)
        try:
            dacl = nul_dacl(handle)
            if dacl is None:
                print("NUL has no access list: every process may open it")
                return 0
            for sid in PACKAGES:
                trustee = win32security.ConvertStringSidToSid(sid)
                dacl.AddAccessAllowedAce(win32security.ACL_REVISION, NUL_MASK, trustee)
            win32security.SetSecurityInfo(
                handle, win32security.SE_FILE_OBJECT, win32security.DACL_SECURITY_INFORMATION,
                None, None, dacl, None,
            )  # fmt: skip
        finally:
            win32api.CloseHandle(handle)
    except pywintypes.error as error:
        print(f"NUL cannot be changed: {error.strerror} (an administrator can)", file=sys.stderr)
        return 1
    print("AppContainers may open NUL until Windows is started again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
