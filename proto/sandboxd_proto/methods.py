"""The method table: the one list that the daemon serves, clients call and openrpc.json shows.

A new method also needs a line in the daemon's `rpc/handlers/table.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sandboxd_proto.messages import (
    approval,
    audit,
    event,
    execute,
    execution,
    fs,
    notifications,
    sandbox,
    server,
    session,
)


@dataclass(frozen=True, slots=True)
class Method:
    """`runs`: it starts something, so one without an id (a notification) is not carried out.
    `role`: which role of a connection may call it; None for both."""

    name: str
    params: type[Any]
    result: Any
    summary: str
    runs: bool = False
    role: Literal["worker", "approver"] | None = None


@dataclass(frozen=True, slots=True)
class Notification:
    name: str
    params: type[Any]
    summary: str


METHODS: tuple[Method, ...] = (
    Method("initialize", server.InitializeParams, server.InitializeResult,
           "Say who you are; learn the daemon's version, backend and presets. Optional."),
    Method("status", execution.NoParams, server.StatusResult,
           "What works here and what does not, probed for real."),
    Method("execute", execute.ExecuteParams, (execute.ExecuteResult, execute.Detached),
           "Run one command in a sandbox.", runs=True, role="worker"),
    Method("execution/write", execution.WriteParams, execution.Nothing,
           "Write to the stdin of an execution started with stdin_open or pty.", role="worker"),
    Method("execution/close_stdin", execution.ExecutionRef, execution.Nothing,
           "End the stdin of an execution.", role="worker"),
    Method("execution/signal", execution.SignalParams, execution.Nothing,
           "Send a signal, by number or name.", role="worker"),
    Method("execution/resize", execution.ResizeParams, execution.Nothing,
           "Change the size of an execution's terminal.", role="worker"),
    Method("execution/cancel", execution.ExecutionRef, execution.Nothing,
           "Kill an execution's whole process tree; its outcome is then `cancelled`."),
    Method("execution/list", execution.ExecutionListParams, execution.ExecutionList,
           "The executions that this connection may use."),
    Method("execution/wait", execution.WaitParams, execute.ExecuteResult,
           "The result of an execution; kept for ten minutes after a detached one ends. After "
           "timeout_secs the answer is {state} instead."),
    Method("execution/status", execution.ExecutionRef, execution.ExecutionStatus,
           "Whether an execution runs, and its result when it has ended."),
    Method("execution/attach", execution.AttachParams, execution.Attached,
           "Be told what a detached execution says, from the output that is kept on."),
    Method("sandbox/create", sandbox.SandboxCreateParams, sandbox.SandboxCreated,
           "Open a sandbox that outlives one command.", runs=True, role="worker"),
    Method("sandbox/list", execution.NoParams, sandbox.SandboxList,
           "The sandboxes that outlive their commands."),
    Method("sandbox/get", sandbox.SandboxRef, sandbox.SandboxDetails,
           "One of them, by id or name."),
    Method("sandbox/destroy", sandbox.SandboxRef, execution.Nothing,
           "End a sandbox and everything in it.", role="worker"),
    Method("sandbox/forward", sandbox.ForwardParams, sandbox.Forwarded,
           "Reach a server inside a sandbox through a socket of the host.", role="worker"),
    Method("sandbox/unforward", sandbox.UnforwardParams, execution.Nothing,
           "End a forward.", role="worker"),
    Method("fs/read", fs.ReadParams, fs.FileData, "A piece of a file in a sandbox.", role="worker"),
    Method("fs/write", fs.FileWriteParams, fs.Written, "Write a file in a sandbox.", role="worker"),
    Method("fs/stat", fs.StatParams, fs.FileStatus,
           "Type, size, mode and time of a path.", role="worker"),
    Method("fs/list", fs.ListParams, fs.FolderList, "The entries of a folder.", role="worker"),
    Method("fs/mkdir", fs.MkdirParams, execution.Nothing, "Make a folder.", role="worker"),
    Method("fs/remove", fs.RemoveParams, execution.Nothing,
           "Remove a file or a folder.", role="worker"),
    Method("fs/rename", fs.RenameParams, execution.Nothing,
           "Rename a file or a folder.", role="worker"),
    Method("fs/copy", fs.CopyParams, execution.Nothing, "Copy a file or a folder.", role="worker"),
    Method("fs/realpath", fs.PathParams, fs.RealPath,
           "A path without links and dots.", role="worker"),
    Method("manifest/check", server.CheckParams, server.CheckResult,
           "What `execute` would enforce, or its error. Runs nothing."),
    Method("session/open", session.SessionOpenParams, session.SessionOpened,
           "Open a session; the connection is attached to it unless a parent is named.",
           runs=True, role="worker"),
    Method("session/attach", session.SessionAttachParams, session.SessionInfo,
           "Attach this connection to a session, with its token.", role="worker"),
    Method("session/update", session.SessionUpdateParams, session.SessionInfo,
           "Change a session. Narrowing is at once; widening by a worker waits for an approval.",
           runs=True),
    Method("session/close", session.SessionRef, session.SessionClosed,
           "Close a session and all below it; what runs in them is killed."),
    Method("session/list", execution.NoParams, session.SessionList,
           "The sessions that this connection may see."),
    Method("session/charge", session.ChargeParams, session.Charged,
           "Charge tokens and cost to a session's budget.", role="worker"),
    Method("approval/list", approval.ApprovalListParams, approval.ApprovalList,
           "Approvals in one state; `pending` without one."),
    Method("approval/decide", approval.DecideParams, approval.ApprovalInfo,
           "Decide an approval; the digest must be the one that was shown.", role="approver"),
    Method("approval/wait", approval.ApprovalWaitParams, approval.ApprovalInfo,
           "Wait until an approval is resolved, or for a time."),
    Method("grant/list", approval.GrantListParams, approval.GrantList,
           "What was approved for a session or a workspace.", role="approver"),
    Method("grant/remove", approval.GrantRef, execution.Nothing,
           "Take a grant back.", role="approver"),
    Method("events/subscribe", event.SubscribeParams, event.Subscribed,
           "Follow the audit trail from a cursor; with a token as approver."),
    Method("events/unsubscribe", event.UnsubscribeParams, execution.Nothing,
           "End a subscription."),
    Method("audit/query", audit.AuditQueryParams, audit.AuditPage,
           "Records of the audit trail, a page at a time."),
    Method("audit/verify", execution.NoParams, audit.Verified,
           "Whether the chain of the audit trail is whole.", role="approver"),
    Method("rpc.discover", execution.NoParams, server.OpenRpc, "This document."),
    Method("shutdown", execution.NoParams, execution.Nothing,
           "End every child, then the daemon.", runs=True),
)  # fmt: skip

NOTIFICATIONS: tuple[Notification, ...] = (
    Notification("execution/started", notifications.Started, "The command was executed."),
    Notification("execution/output", notifications.Output,
                 "A piece of a stream; `seq` counts from 0 within each stream."),
    Notification("execution/denial", notifications.DenialSeen, "Something was refused."),
    Notification("execution/exited", notifications.Exited,
                 "The command ended; the answer to the request follows."),
    Notification("execution/progress", notifications.Progress,
                 "How far long work is that comes before a command, for example an image."),
    Notification("execution/pending", approval.ApprovalPendingNotice,
                 "The execution waits for an approval."),
    Notification("approval/requested", approval.ApprovalInfo, "An approval waits for a decision."),
    Notification("approval/resolved", approval.ApprovalInfo, "An approval was resolved."),
    Notification("session/changed", session.SessionInfo, "A session changed."),
    Notification("budget/warning", session.BudgetNotice, "80 % of a limit are used."),
    Notification("budget/exceeded", session.BudgetNotice, "A limit was reached."),
    Notification("events/event", event.Event, "A record of the audit trail."),
)  # fmt: skip

BY_NAME = {method.name: method for method in METHODS}
