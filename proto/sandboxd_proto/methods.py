"""The method table: the one list that the daemon serves, clients call and openrpc.json shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandboxd_proto.messages import execute, execution, notifications, sandbox, server


@dataclass(frozen=True, slots=True)
class Method:
    """`runs`: it starts something, so one without an id (a notification) is not carried out."""

    name: str
    params: type[Any]
    result: Any
    summary: str
    runs: bool = False


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
           "Run one command in a sandbox.", runs=True),
    Method("execution/write", execution.WriteParams, execution.Nothing,
           "Write to the stdin of an execution started with stdin_open or pty."),
    Method("execution/close_stdin", execution.ExecutionRef, execution.Nothing,
           "End the stdin of an execution."),
    Method("execution/signal", execution.SignalParams, execution.Nothing,
           "Send a signal, by number or name."),
    Method("execution/resize", execution.ResizeParams, execution.Nothing,
           "Change the size of an execution's terminal."),
    Method("execution/cancel", execution.ExecutionRef, execution.Nothing,
           "Kill an execution's whole process tree; its outcome is then `cancelled`."),
    Method("execution/list", execution.NoParams, execution.ExecutionList,
           "The executions that this connection may use."),
    Method("execution/wait", execution.ExecutionRef, execute.ExecuteResult,
           "The result of an execution; kept for ten minutes after a detached one ends."),
    Method("sandbox/create", sandbox.SandboxCreateParams, sandbox.SandboxCreated,
           "Open a sandbox that outlives one command.", runs=True),
    Method("sandbox/list", execution.NoParams, sandbox.SandboxList,
           "The sandboxes that outlive their commands."),
    Method("sandbox/destroy", sandbox.SandboxRef, execution.Nothing,
           "End a sandbox and everything in it."),
    Method("manifest/check", server.CheckParams, server.CheckResult,
           "What `execute` would enforce, or its error. Runs nothing."),
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
)  # fmt: skip

BY_NAME = {method.name: method for method in METHODS}
