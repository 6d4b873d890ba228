"""One module for each group of methods; `TABLE` is checked against the contract's method table."""

from sandboxd.rpc.dispatch import Handler
from sandboxd.rpc.handlers import check, execute, execution, sandbox, server

TABLE: dict[str, Handler] = {
    "initialize": server.initialize,
    "status": server.status,
    "rpc.discover": server.discover,
    "shutdown": server.shutdown,
    "manifest/check": check.manifest_check,
    "execute": execute.execute,
    "execution/write": execution.write,
    "execution/close_stdin": execution.close_stdin,
    "execution/signal": execution.signal,
    "execution/resize": execution.resize,
    "execution/cancel": execution.cancel,
    "execution/list": execution.list_,
    "execution/wait": execution.wait,
    "sandbox/create": sandbox.create,
    "sandbox/list": sandbox.list_,
    "sandbox/destroy": sandbox.destroy,
}
