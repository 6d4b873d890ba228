"""Structures and constants of the Windows interface that pywin32 does not have.

Only types of a fixed width: sizes and offsets are the same wherever this is imported, so that they
are compared with the headers of a compiler on any machine.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p


class IO_COUNTERS(ctypes.Structure):
    _fields_ = (
        ("ReadOperationCount", c_uint64), ("WriteOperationCount", c_uint64),
        ("OtherOperationCount", c_uint64), ("ReadTransferCount", c_uint64),
        ("WriteTransferCount", c_uint64), ("OtherTransferCount", c_uint64),
    )  # fmt: skip


class JOBOBJECT_BASIC_LIMIT_INFORMATION(ctypes.Structure):
    _fields_ = (
        ("PerProcessUserTimeLimit", c_int64), ("PerJobUserTimeLimit", c_int64),
        ("LimitFlags", c_uint32), ("MinimumWorkingSetSize", c_size_t),
        ("MaximumWorkingSetSize", c_size_t), ("ActiveProcessLimit", c_uint32),
        ("Affinity", c_size_t), ("PriorityClass", c_uint32), ("SchedulingClass", c_uint32),
    )  # fmt: skip


class JOBOBJECT_EXTENDED_LIMIT_INFORMATION(ctypes.Structure):
    _fields_ = (
        ("BasicLimitInformation", JOBOBJECT_BASIC_LIMIT_INFORMATION), ("IoInfo", IO_COUNTERS),
        ("ProcessMemoryLimit", c_size_t), ("JobMemoryLimit", c_size_t),
        ("PeakProcessMemoryUsed", c_size_t), ("PeakJobMemoryUsed", c_size_t),
    )  # fmt: skip


class JOBOBJECT_ASSOCIATE_COMPLETION_PORT(ctypes.Structure):
    _fields_ = (("CompletionKey", c_void_p), ("CompletionPort", c_void_p))


class JOBOBJECT_BASIC_UI_RESTRICTIONS(ctypes.Structure):
    _fields_ = (("UIRestrictionsClass", c_uint32),)


class JOBOBJECT_BASIC_PROCESS_ID_LIST(ctypes.Structure):
    """The list is longer; only the counts are read."""

    _fields_ = (
        ("NumberOfAssignedProcesses", c_uint32), ("NumberOfProcessIdsInList", c_uint32),
        ("ProcessIdList", c_size_t * 1),
    )  # fmt: skip


class STARTUPINFOW(ctypes.Structure):
    _fields_ = (
        ("cb", c_uint32), ("lpReserved", c_void_p), ("lpDesktop", c_void_p), ("lpTitle", c_void_p),
        ("dwX", c_uint32), ("dwY", c_uint32), ("dwXSize", c_uint32), ("dwYSize", c_uint32),
        ("dwXCountChars", c_uint32), ("dwYCountChars", c_uint32), ("dwFillAttribute", c_uint32),
        ("dwFlags", c_uint32), ("wShowWindow", c_uint16), ("cbReserved2", c_uint16),
        ("lpReserved2", c_void_p), ("hStdInput", c_void_p), ("hStdOutput", c_void_p),
        ("hStdError", c_void_p),
    )  # fmt: skip


class STARTUPINFOEXW(ctypes.Structure):
    _fields_ = (("StartupInfo", STARTUPINFOW), ("lpAttributeList", c_void_p))


class PROCESS_INFORMATION(ctypes.Structure):
    _fields_ = (
        ("hProcess", c_void_p), ("hThread", c_void_p), ("dwProcessId", c_uint32),
        ("dwThreadId", c_uint32),
    )  # fmt: skip


class SECURITY_ATTRIBUTES(ctypes.Structure):
    _fields_ = (
        ("nLength", c_uint32), ("lpSecurityDescriptor", c_void_p), ("bInheritHandle", c_int32)
    )  # fmt: skip


class SID_AND_ATTRIBUTES(ctypes.Structure):
    _fields_ = (("Sid", c_void_p), ("Attributes", c_uint32))


class SECURITY_CAPABILITIES(ctypes.Structure):
    _fields_ = (
        ("AppContainerSid", c_void_p), ("Capabilities", c_void_p), ("CapabilityCount", c_uint32),
        ("Reserved", c_uint32),
    )  # fmt: skip


class OVERLAPPED(ctypes.Structure):
    _fields_ = (
        ("Internal", c_size_t), ("InternalHigh", c_size_t), ("Offset", c_uint32),
        ("OffsetHigh", c_uint32), ("hEvent", c_void_p),
    )  # fmt: skip


# Attributes of a process that is made.
PROC_THREAD_ATTRIBUTE_HANDLE_LIST = 0x20002
PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES = 0x20009
PROC_THREAD_ATTRIBUTE_JOB_LIST = 0x2000D

CREATE_SUSPENDED = 0x4
CREATE_UNICODE_ENVIRONMENT = 0x400
EXTENDED_STARTUPINFO_PRESENT = 0x80000
CREATE_NO_WINDOW = 0x8000000
STARTF_USESTDHANDLES = 0x100

# Limits of a job.
JOB_OBJECT_LIMIT_JOB_TIME = 0x4
JOB_OBJECT_LIMIT_ACTIVE_PROCESS = 0x8
JOB_OBJECT_LIMIT_PRIORITY_CLASS = 0x20
JOB_OBJECT_LIMIT_PROCESS_MEMORY = 0x100
JOB_OBJECT_LIMIT_JOB_MEMORY = 0x200
JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION = 0x400
JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE = 0x2000
BELOW_NORMAL_PRIORITY_CLASS = 0x4000

# Classes of information of a job.
JobObjectBasicProcessIdList = 3
JobObjectBasicUIRestrictions = 4
JobObjectAssociateCompletionPortInformation = 7
JobObjectExtendedLimitInformation = 9

# Messages of a job's completion port.
JOB_OBJECT_MSG_END_OF_JOB_TIME = 1
JOB_OBJECT_MSG_END_OF_PROCESS_TIME = 2
JOB_OBJECT_MSG_ACTIVE_PROCESS_LIMIT = 3
JOB_OBJECT_MSG_ACTIVE_PROCESS_ZERO = 4
JOB_OBJECT_MSG_PROCESS_MEMORY_LIMIT = 9
JOB_OBJECT_MSG_JOB_MEMORY_LIMIT = 10

TokenIntegrityLevel = 25
TokenIsAppContainer = 29
TokenAppContainerSid = 31
SE_GROUP_ENABLED = 0x4
