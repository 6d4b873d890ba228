"""A task of Windows' scheduler that starts the daemon when the user logs on. Not verified there.

No Windows service: that would run in another session, under another account.
"""

from __future__ import annotations

import ntpath
import subprocess
from collections.abc import Mapping
from xml.sax.saxutils import escape

from sandboxd_client.service import ServiceFile, ServicePlan

TASK = "sandboxd"
_XML = """\
<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo>
    <Description>sandboxd: run commands in a sandbox</Description>
  </RegistrationInfo>
  <Triggers><LogonTrigger><Enabled>true</Enabled><UserId>{user}</UserId></LogonTrigger></Triggers>
  <Principals><Principal id="Author"><UserId>{user}</UserId>\
<LogonType>InteractiveToken</LogonType><RunLevel>LeastPrivilege</RunLevel></Principal></Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure><Interval>PT1M</Interval><Count>3</Count></RestartOnFailure>
    <Enabled>true</Enabled>
  </Settings>
  <Actions Context="Author"><Exec><Command>{command}</Command>{arguments}</Exec></Actions>
</Task>
"""


def plan(program: list[str], environ: Mapping[str, str]) -> ServicePlan:
    local = environ.get("LOCALAPPDATA") or ntpath.join(environ.get("USERPROFILE", ""), "AppData")
    path = ntpath.join(local, "sandboxd", "logon-task.xml")
    domain, user = environ.get("USERDOMAIN", ""), environ.get("USERNAME", "")
    if not user:
        raise ValueError("the variable USERNAME is not set")
    name = f"{domain}\\{user}" if domain else user
    return ServicePlan(
        manager="the task scheduler",
        files=(ServiceFile(path, task_xml(program, name)),),
        start=(("schtasks", "/Create", "/TN", TASK, "/XML", path, "/F"),
               ("schtasks", "/Run", "/TN", TASK)),
        stop=(("schtasks", "/End", "/TN", TASK), ("schtasks", "/Delete", "/TN", TASK, "/F")),
        is_active=("schtasks", "/Query", "/TN", TASK),
        note="the daemon starts when you log on (not verified on a real Windows)",
    )  # fmt: skip


def task_xml(program: list[str], user: str) -> bytes:
    """UTF-16 with a byte order mark: schtasks takes nothing else."""
    rest = subprocess.list2cmdline(program[1:])
    arguments = f"<Arguments>{escape(rest)}</Arguments>" if rest else ""
    text = _XML.format(user=escape(user), command=escape(program[0]), arguments=arguments)
    return text.encode("utf-16")
