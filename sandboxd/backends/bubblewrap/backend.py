"""The bubblewrap backend: bwrap makes namespaces and mounts, our init runs the commands."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    suppress,
)
from functools import partial
from types import TracebackType

import anyio.to_thread

from sandboxd import event_loop
from sandboxd.backends.bubblewrap import diagnosis
from sandboxd.backends.bubblewrap.arguments import Bind
from sandboxd.backends.bubblewrap.binary import known
from sandboxd.backends.bubblewrap.bind_errors import unreachable
from sandboxd.backends.bubblewrap.breaker import TRIAL_S, USUAL_MOUNTS, Breaker
from sandboxd.backends.bubblewrap.clones import (
    CloneFailures,
    SpecTemplate,
    Templates,
    Verification,
    can_clone,
)
from sandboxd.backends.bubblewrap.launch_plan import BwrapLine, LaunchPlans, root_inside
from sandboxd.backends.bubblewrap.probe import TRIVIAL, find_program, probe
from sandboxd.backends.enforcement import linux_tiers
from sandboxd.backends.gated import open_gated
from sandboxd.backends.interface import Capabilities, Enforcement, Probe
from sandboxd.backends.linux_context import LinuxSupport
from sandboxd.backends.shared_probe import SharedProbe
from sandboxd.linux.init_client.launch import READY_TIMEOUT_S, LaunchFailed, launch
from sandboxd.linux.openat import changed_error
from sandboxd.linux.setpriv import look_up_groups
from sandboxd.policy.plan import Plan, SandboxSpec
from sandboxd.resource_errors import process_limit_error, resource_error
from sandboxd.types import Sandbox
from sandboxd_proto.errors import SandboxdError, SandboxUnavailable

log = logging.getLogger(__name__)
MANY_MOUNTS = 256
ATTEMPTS = 5  # container engines mount and unmount all the time, and bwrap binds what it has listed


class _TryAgain(Exception):
    """Worth another attempt. `refusal` is the answer when every attempt ends like this."""

    def __init__(self, refusal: SandboxdError | LaunchFailed) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Bubblewrap:
    name = "bubblewrap"
    capabilities = Capabilities(
        mounts=True, explains=True, files=True, session_tmp=True, opens_at_once=True
    )

    def __init__(self, support: LinuxSupport, *, clones: bool = True) -> None:
        self._support = support
        self._plans = LaunchPlans(support)
        self._clones = clones
        self._clone_failures = CloneFailures()
        self._serving = False
        self._templates = Templates()
        self._shared_probe = SharedProbe(self._probe)
        self._breaker = Breaker()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Templates are kept only in here, where they are ended as well."""
        self._serving = True
        try:
            yield
        finally:
            self._serving = False
            await self._templates.close()

    def _may_clone(self, spec: SandboxSpec) -> bool:
        if not (self._clones and self._serving and self._clone_failures.may_try(spec)):
            return False
        return spec in self._templates or can_clone(spec, self._plans.layout(spec))

    async def probe(self) -> Probe:
        return await self._shared_probe()

    async def _probe(self) -> Probe:
        return await probe(self._open(TRIVIAL, asked=True), self._support.limits_layer)

    def enforcement(self, plan: Plan) -> Enforcement:
        namespace = not root_inside(plan.sandbox)
        return linux_tiers(plan, self._support.cgroups, counts_processes=namespace)

    def command_line(self, plan: Plan) -> list[str]:
        return self._plans.command_line(plan.sandbox, known())

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return _Opening(partial(self._quick_clone, spec), partial(self._open, spec))

    async def _quick_clone(self, spec: SandboxSpec) -> tuple[launch, Sandbox] | None:
        """In few calls, from a template that is up. None where that is not to be had, or fails: the
        long way knows what to try then."""
        if spec not in self._templates or self._breaker.tripped or not self._may_clone(spec):
            return None
        if spec.run_as is not None:
            with suppress(RuntimeError):  # no thread: the long way finds it too
                await look_up_groups(spec.run_as)
        template = self._templates.get(spec)
        if template is None:
            return None
        ruleset = self._plans.ruleset()
        free, number = (ruleset.close, ruleset.fileno()) if ruleset else (_do_nothing, None)
        opened = launch(template.launch, free, number)
        try:
            sandbox = await opened.__aenter__()
        except LaunchFailed as failed:
            self._templates.drop(spec)
            if failed.hung:
                raise self._refusal(failed, {}, spec) from None
            return None
        finally:
            free()
        if template.verify.changed() or not template.settle():
            self._templates.drop(spec)
            await opened.close()
            return None
        self._clone_failures.worked(spec)
        return opened, sandbox

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec, *, asked: bool = False) -> AsyncIterator[Sandbox]:
        """`asked`: whether bwrap works is the question, so that it is tried in any case."""
        async with AsyncExitStack() as stack:
            with self._breaker.attempt(asked=asked):
                clone = not asked and self._may_clone(spec)
                try:
                    sandbox = await self._first_that_works(spec, stack, clone=clone)
                except RuntimeError as error:  # no thread, perhaps
                    raise resource_error(error) or error from None
                self._breaker.worked()
            yield sandbox

    async def _first_that_works(
        self, spec: SandboxSpec, stack: AsyncExitStack, *, clone: bool
    ) -> Sandbox:
        """What cannot be cloned gets a bwrap of its own."""
        if not clone:
            return await self._retry(spec, stack, clone=False)
        try:
            sandbox = await self._retry(spec, stack, clone=True)
        except LaunchFailed as failed:
            sandbox = await self._retry(spec, stack, clone=False)
            if not failed.changed:  # that says nothing about clones
                self._clone_failures.failed(spec, failed)
        else:
            self._clone_failures.worked(spec)
        return sandbox

    async def _retry(self, spec: SandboxSpec, stack: AsyncExitStack, *, clone: bool) -> Sandbox:
        for left in reversed(range(ATTEMPTS)):
            try:
                attempt = self._attempt(spec, clone=clone)
                return await stack.enter_async_context(attempt)
            except _TryAgain as failed:
                if not left:
                    raise failed.refusal from None
        raise AssertionError("not reached")

    @asynccontextmanager
    async def _attempt(self, spec: SandboxSpec, *, clone: bool) -> AsyncIterator[Sandbox]:
        with ExitStack() as kept:
            held = kept.enter_context(ExitStack())
            sources: dict[str, Bind] = {}
            await look_up_groups(spec.run_as)
            template = self._templates.get(spec) if clone else None
            if template is None:
                await event_loop.enter_task()
                program = await find_program(self._breaker)
                await self._plans.make_etc(spec)
                verify = self._plans.verification(spec)
                words = spec, program, held, sources
                make = partial(self._plans.line, *words, template=clone)
                line = await anyio.to_thread.run_sync(make) if _is_large(spec) else make()
                if clone:
                    template = self._template(spec, line, verify)
                else:
                    kept.enter_context(self._plans.hold_etc(spec))
                    plan = self._plans.launch(spec, line, held, verify, self._ready_s)
            if template is not None:
                plan = self._plans.clone(template, held, self._ready_s)
            try:
                opened: AbstractAsyncContextManager[Sandbox]
                if spec.network.kind == "allow_hosts":
                    egress = self._support.egress
                    opened = open_gated(plan, held.close, spec.network, egress)
                else:
                    opened = launch(plan, held.close)
                async with opened as sandbox:
                    if plan.changed():
                        raise LaunchFailed("the host changed meanwhile", changed=True)
                    if template is not None and not template.settle():
                        self._templates.drop(spec)
                        moved = LaunchFailed("mounts of the host came and went", changed=True)
                        raise _TryAgain(moved)
                    yield sandbox
            except LaunchFailed as failed:
                self._templates.drop(spec)
                # Begun before this request, perhaps: what bwrap missed may be there by now.
                failed.changed = failed.changed or plan.changed()
                refusal = self._refusal(failed, sources, spec)
                if clone and isinstance(refusal, SandboxUnavailable) and not failed.hung:
                    raise  # perhaps only clones are refused here
                raise refusal from None

    def _template(self, spec: SandboxSpec, line: BwrapLine, verify: Verification) -> SpecTemplate:
        """Another request may have made one while this one waited for `line`."""
        found = self._templates.get(spec)
        if found is None:
            found = self._plans.start_template(spec, line, verify)
            self._templates.add(spec, found)
        return found

    @property
    def _ready_s(self) -> float:
        return TRIAL_S if self._breaker.tripped else READY_TIMEOUT_S

    def _refusal(
        self, failed: LaunchFailed, sources: dict[str, Bind], spec: SandboxSpec
    ) -> SandboxdError | _TryAgain:
        said = str(failed)
        if failed.hung:
            mounts = len(self._plans.layout(spec).places)
            self._breaker.hung("bwrap hung", mounts=mounts)
            if mounts > USUAL_MOUNTS:
                reason = f"bwrap did not make {mounts} mounts in time: {said}"
                return SandboxUnavailable(reason, remedy="name folders instead of single files")
            return SandboxUnavailable(f"bwrap hangs: {said}", remedy=diagnosis.HANGS)
        if failed.no_more_processes or diagnosis.no_more_processes(said):
            return process_limit_error(f"no sandbox could be made ({said})")
        refusal = unreachable(said, sources, spec.run_as)
        if refusal is not None:
            return refusal
        if failed.killed:
            log.warning("bwrap did not come up: %s", said)
            return _TryAgain(SandboxUnavailable(f"bwrap failed: {said}", remedy=diagnosis.KILLED))
        if failed.moved is not None:
            # A rename over a mount point while bwrap mounted: a mask is missing.
            return _TryAgain(changed_error(failed.moved, "it was replaced"))
        if failed.changed or diagnosis.mounts_moved(said):
            reason = f"this host changed while bwrap bound its files: {said}"
            return _TryAgain(SandboxUnavailable(reason, remedy="send the request again"))
        program = known()
        why = diagnosis.explain(said, program.path if program else "bwrap")
        return SandboxUnavailable(why.reason, remedy=why.remedy)


class _Opening:
    """A context manager by hand: those of generators take many calls, and this is the way of each
    fresh sandbox."""

    __slots__ = ("_hold", "_quick", "_slow")

    def __init__(
        self, quick: Callable[[], Awaitable[tuple[launch, Sandbox] | None]],
        slow: Callable[[], AbstractAsyncContextManager[Sandbox]],
    ) -> None:  # fmt: skip
        self._quick, self._slow = quick, slow
        self._hold: AbstractAsyncContextManager[Sandbox] | launch

    async def __aenter__(self) -> Sandbox:
        found = await self._quick()
        if found is not None:
            self._hold, sandbox = found
            return sandbox
        self._hold = slow = self._slow()
        return await slow.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> bool | None:  # fmt: skip
        if not isinstance(self._hold, launch):
            await event_loop.enter_task()
        return await self._hold.__aexit__(kind, error, where)


def _do_nothing() -> None:
    pass


def _is_large(spec: SandboxSpec) -> bool:
    """Whether opening all that is bound takes too long for the event loop."""
    return len(spec.grants) + len(spec.masks) > MANY_MOUNTS
