"""The profile: evaluated by TinyScheme, and its decisions by the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from macos.model import Decisions
from msgspec.structs import replace
from sbpl import ProfileError, evaluate

from sandboxd.macos import profile_data
from sandboxd.macos.profile import ProfileRequest, UnsafePath, profile

TAG = "dev.sandboxd." + "0123456789abcdef" * 2
HOME = "/Users/me"
W = f"{HOME}/work"
WORKSPACE = ProfileRequest(
    tag=TAG,
    base="host",
    grants=((W, "write"), (f"{W}/vendor", "read"), (f"{W}/vendor/out", "write"),
            (f"{HOME}/.pyenv", "read"), (f"{HOME}/agent.sock", "read")),
    masks=(f"{W}/.env", f"{HOME}/.pyenv/secret"),
    protected=((f"{W}/.git/hooks", W), (f"{W}/.vscode", W), (f"{W}/a/b/.envrc", W)),
    absent=frozenset({f"{W}/.vscode", f"{W}/a/b/.envrc"}),
    programs=("/opt/tool/launcher",),
    sockets=(f"{HOME}/agent.sock",),
    homes=(HOME,),
)  # fmt: skip
pytestmark = pytest.mark.requires("tinyscheme")


def workspace(**changes: object) -> Decisions:

    return Decisions(profile(replace(WORKSPACE, **changes)))  # type: ignore[arg-type]


def test_the_profile_is_what_was_reviewed() -> None:
    """The snapshot: `SNAPSHOT=1` in the environment is not read; write the file by hand."""
    expected = (Path(__file__).parent / "data" / "workspace.sb").read_text()
    made = profile(WORKSPACE)
    assert made.text + "".join(f";{k}={v}\n" for k, v in made.parameters) == expected


ALLOWED = [
    ("file-read-data", {"path": f"{W}/src/x"}),
    ("file-write-create", {"path": f"{W}/src/x"}),
    ("file-write-create", {"path": f"{W}/.git/index"}),
    ("file-write-create", {"path": f"{W}/node_modules/x/.vscode/x"}),
    ("file-write-create", {"path": f"{W}/.vscodex"}),
    ("file-write-unlink", {"path": f"{W}/src", "vnode": "DIRECTORY"}),
    ("file-write-unlink", {"path": f"{W}/a/b", "vnode": "REGULAR-FILE"}),
    ("file-read-data", {"path": f"{W}/vendor/x"}),
    ("file-write-data", {"path": f"{W}/vendor/out/x"}),
    ("file-read-data", {"path": f"{W}/.git/hooks/pre-commit"}),
    ("file-read-metadata", {"path": HOME}),
    ("file-read-metadata", {"path": "/Users"}),
    ("file-read-data", {"path": f"{HOME}/.pyenv/bin/python"}),
    ("file-map-executable", {"path": f"{HOME}/.pyenv/lib/x.dylib"}),
    ("file-read-data", {"path": "/usr/bin/git"}),
    ("file-read-data", {"path": "/opt/tool/launcher"}),
    ("network-bind", {"path": f"{W}/server.sock"}),
    ("network-outbound", {"path": f"{HOME}/agent.sock"}),
    ("file-write-data", {"path": "/dev/null"}),
    ("process-exec", {"path": "/bin/sh"}),
    ("signal", {"process": "same-sandbox"}),
    ("sysctl-read", {"name": "hw.something_new_in_tahoe"}),
    ("sysctl-read", {"name": "kern.osrelease"}),
    ("mach-lookup", {"name": TAG}),
]
DENIED = [
    ("file-read-data", {"path": f"{HOME}/.ssh/id_ed25519"}),
    ("file-read-data", {"path": HOME}),
    ("file-read-metadata", {"path": f"{HOME}/.ssh"}),
    ("file-write-create", {"path": f"{HOME}/x"}),
    ("file-write-create", {"path": "/usr/local/bin/x"}),
    ("file-write-data", {"path": f"{W}/vendor/x"}),
    ("file-write-create", {"path": f"{W}/vendor"}),
    ("file-write-create", {"path": f"{W}/.git/hooks/pre-commit"}),
    ("file-write-create", {"path": f"{W}/.git/hooks"}),
    ("file-write-create", {"path": f"{W}/.vscode"}),
    ("file-write-create", {"path": f"{W}/.VSCode"}),
    ("file-write-create", {"path": f"{W}/.VSCODE/tasks.json"}),
    ("file-write-create", {"path": f"{W}/A/b/.ENVRC"}),
    ("file-write-mode", {"path": f"{W}/.git/hooks/x"}),
    ("file-link", {"path": f"{W}/.git/hooks/x"}),
    ("file-link", {"path": f"{W}/vendor/x"}),
    ("file-link", {"path": f"{W}/src/x"}),
    ("file-write-setugid", {"path": "/usr/bin/x"}),
    ("network-bind", {"path": f"{W}/.vscode/x"}),
    ("file-write-unlink", {"path": f"{W}/.git", "vnode": "DIRECTORY"}),
    ("file-write-unlink", {"path": f"{W}/a", "vnode": "DIRECTORY"}),
    ("file-write-unlink", {"path": f"{W}/a/b", "vnode": "DIRECTORY"}),
    ("file-write-unlink", {"path": W, "vnode": "DIRECTORY"}),
    ("file-read-data", {"path": f"{W}/.env"}),
    ("file-read-metadata", {"path": f"{W}/.env"}),
    ("file-write-create", {"path": f"{W}/.env"}),
    ("file-read-data", {"path": f"{HOME}/.pyenv/secret/x"}),
    ("file-write-data", {"path": "/opt/tool/launcher"}),
    ("network-outbound", {"remote": "1.2.3.4:443"}),
    ("network-outbound", {"path": "/private/var/run/docker.sock"}),
    ("network-outbound", {"path": f"{HOME}/.pyenv/daemon.sock"}),
    ("network-outbound", {"path": "/private/var/run/mDNSResponder"}),
    ("mach-lookup", {"name": "com.apple.trustd"}),
    ("mach-lookup", {"name": "com.apple.coreservices.appleevents"}),
    ("mach-lookup", {"name": "com.apple.pasteboard.1"}),
    ("mach-register", {"name": "x"}),
    ("sysctl-read", {"name": "kern.procargs2"}),
    ("sysctl-read", {"name": "kern.proc.all"}),
    ("sysctl-write", {"name": "kern.osrelease"}),
    ("signal", {"process": "others"}),
    ("file-write-data", {"path": "/dev/ttys001"}),
    ("file-read-data", {"path": "/dev/ttys001"}),
    ("file-read-data", {"path": "/private/tmp/x"}),
    ("file-read-data", {"path": "/private/var/folders/ab/T/x"}),
    ("file-read-data", {"path": "/private/etc/master.passwd"}),
    ("file-read-data", {"path": "/Users/someone/x"}),
    ("file-read-data", {"path": "/Volumes/disk/x"}),
    ("appleevent-send", {}),
    ("iokit-open", {"name": "AGXDeviceUserClient"}),
]


@pytest.fixture(scope="module")
def decisions() -> Decisions:
    return workspace()


@pytest.mark.parametrize(("operation", "target"), ALLOWED)
def test_a_workspace_allows(decisions: Decisions, operation: str, target: dict[str, str]) -> None:
    assert decisions.allows(operation, **target)


@pytest.mark.parametrize(("operation", "target"), DENIED)
def test_a_workspace_denies(decisions: Decisions, operation: str, target: dict[str, str]) -> None:
    assert not decisions.allows(operation, **target)


def test_the_minimal_base_shows_the_system_and_nobodys_data() -> None:
    found = workspace(base="minimal", homes=())
    assert found.allows("file-read-data", path="/usr/lib/libSystem.B.dylib")
    assert found.allows("file-read-data", path="/opt/homebrew/bin/git")
    for path in ("/Users/me/x", "/Library/Keychains/x", "/private/etc/master.passwd", "/tmp/x"):
        assert not found.allows("file-read-data", path=path), path


def test_inherited_network_opens_addresses_and_no_unix_socket() -> None:
    found = workspace(network="inherit")
    assert found.allows("network-outbound", remote="1.2.3.4:443")
    assert found.allows("network-inbound", local="0.0.0.0:8080")
    assert found.allows("network-outbound", path="/private/var/run/mDNSResponder")
    assert found.allows("mach-lookup", name="com.apple.trustd")
    for path in ("/private/var/run/docker.sock", f"{HOME}/.docker/run/docker.sock"):
        assert not found.allows("network-outbound", path=path)


def test_named_hosts_open_the_proxys_port_alone() -> None:
    found = workspace(network="allow_hosts", proxy_port=50123)
    assert found.allows("network-outbound", remote="localhost:50123")
    for remote in ("localhost:50124", "1.2.3.4:50123", "1.2.3.4:443"):
        assert not found.allows("network-outbound", remote=remote)
    assert not found.allows("network-outbound", path="/private/var/run/mDNSResponder")
    assert not found.allows("network-bind", local="0.0.0.0:80")


def test_named_hosts_need_a_port() -> None:
    with pytest.raises(ValueError, match="port"):
        workspace(network="allow_hosts")


def test_only_the_given_terminal_can_be_opened() -> None:
    found = workspace(terminal="/dev/ttys007")
    assert found.allows("file-read-data", path="/dev/ttys007")
    assert not found.allows("file-read-data", path="/dev/ttys008")


INJECTED = '/tmp/x") (allow default) (subpath "/'


@pytest.mark.parametrize(
    "path", [INJECTED, "/a b/ü", '/quote"', "/back\\slash", '/\\"', "/(param", "/#t ;", "/'x"]
)
def test_a_path_stays_a_string(path: str) -> None:
    made = profile(ProfileRequest(tag=TAG, grants=((path, "write"),)))
    assert path not in made.text
    found = Decisions(made)
    plain = Decisions(profile(ProfileRequest(tag=TAG, grants=(("/plain", "write"),))))
    assert len(found.rules) == len(plain.rules)
    assert found.allows("file-write-create", path=path)
    assert not found.allows("file-write-create", path="/etc/x")


@pytest.mark.parametrize("path", ["/a\nb", "/a\0b", "/a\rb", "relative", "/bad\udcff"])
@pytest.mark.parametrize("field", ["grants", "masks", "protected"])
def test_a_path_that_no_profile_can_hold_is_refused(path: str, field: str) -> None:
    given = {"grants": ((path, "read"),), "masks": (path,), "protected": ((path, "/"),)}[field]
    with pytest.raises(UnsafePath):
        profile(ProfileRequest(tag=TAG, **{field: given}))  # type: ignore[arg-type]


@pytest.mark.parametrize("tag", ["", "dev.sandboxd.", 'x" (allow default)', TAG + '"'])
def test_a_tag_is_only_what_we_make(tag: str) -> None:
    with pytest.raises(ValueError, match="tag"):
        profile(ProfileRequest(tag=tag))


def test_a_write_grant_inside_a_mask_is_deeper_and_counts() -> None:
    """As in every backend: the deepest place decides."""
    found = workspace(grants=((f"{W}/.env/open", "write"),), masks=(f"{W}/.env",))
    assert found.allows("file-write-create", path=f"{W}/.env/open/x")
    assert not found.allows("file-read-data", path=f"{W}/.env/x")


def test_what_is_in_both_lists_is_writable() -> None:
    found = workspace(grants=((W, "read"), (W, "write")))
    assert found.allows("file-write-create", path=f"{W}/x")


@pytest.mark.parametrize("name", ['x"y', "ü", "a b", "a\\b", "a[b", "a(b)"])
def test_a_name_that_is_not_plain_never_becomes_part_of_the_text(name: str) -> None:
    made = profile(ProfileRequest(tag=TAG, grants=((W, "write"),), protected=((f"{W}/{name}", W),),
                                  absent=frozenset({f"{W}/{name}"})))  # fmt: skip
    assert name not in made.text
    assert not Decisions(made).allows("file-write-create", path=f"{W}/{name}")


def test_every_denial_names_the_execution() -> None:
    for line in profile(WORKSPACE).text.splitlines():
        assert not line.startswith("(deny") or f'(with message "{TAG}")' in line, line


def test_every_rule_has_a_reason() -> None:
    groups = (profile_data.PROCESSES, profile_data.DEVICES, profile_data.ROOT,
              profile_data.NETWORK_INHERIT)  # fmt: skip
    assert all(rule.why and rule.operations for group in groups for rule in group)


@pytest.mark.parametrize(
    "text",
    ["(version 1) (deny default", "(version 1) (deny defalt)", "(version 1) (allow file-read*)",
     '(version 1) (deny default) (allow file-read* (subpth "/"))',
     '(version 1) (deny default) (allow file-read* (subpath (param "NONE")))'],
)  # fmt: skip
def test_a_broken_profile_does_not_evaluate(text: str) -> None:
    """The control for every test above: TinyScheme does tell a broken profile."""
    with pytest.raises(ProfileError):
        evaluate(text, {"P0": "/x"})
