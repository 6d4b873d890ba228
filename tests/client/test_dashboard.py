"""The dashboard: only its own page can talk to it, and nothing that is shown becomes HTML."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.browser import running_browser
from support.daemon import Daemon, running_daemon
from support.sessions import connect_approver, open_session, pending

pytestmark = pytest.mark.requires("bubblewrap")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


@contextmanager
def dashboard(daemon: Daemon) -> Iterator[str]:
    """The address that it prints."""
    command = [sys.executable, "-m", "sandboxd_client.cli", "dashboard", "--no-open"]
    process = subprocess.Popen(
        [*command, "--socket", daemon.socket], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "HOME": str(daemon.home)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


class Site:
    """Requests with exactly these headers."""

    def __init__(self, address: str) -> None:
        rest = address.removeprefix("http://")
        self.host, _, self.token = rest.replace("/", "").partition("#")
        self.cookie = ""

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPConnection(self.host, timeout=20)
        given = {"Host": self.host, "Origin": f"http://{self.host}", "Cookie": self.cookie}
        if body is not None:
            given["Content-Type"] = "application/json"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host=True)
        data = json.dumps(body).encode() if body is not None else b""
        for name, value in {**given, "Content-Length": str(len(data))}.items():
            if value:
                connection.putheader(name, value)
        connection.endheaders(data)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        kind = answer.getheader("Content-Type", "")
        value = json.loads(text) if kind.startswith("application/json") else text.decode()
        return answer.status, value, dict(answer.getheaders())

    def log_in(self) -> int:
        status, _, headers = self.ask("POST", "/login", {"token": self.token})
        self.cookie = headers.get("Set-Cookie", "").partition(";")[0]
        return status


def test_the_token_is_good_once_and_gives_a_strict_cookie(daemon: Daemon) -> None:
    with dashboard(daemon) as address:
        site = Site(address)
        assert site.host.startswith("127.0.0.1:")
        assert site.ask("GET", "/state")[0] == 401
        assert site.ask("POST", "/login", {"token": "0" * 48})[0] == 403
        status, _, headers = site.ask("POST", "/login", {"token": site.token})
        assert status == 200
        assert "HttpOnly" in headers["Set-Cookie"]
        assert "SameSite=Strict" in headers["Set-Cookie"]
        assert site.ask("POST", "/login", {"token": site.token})[0] == 403
        site.cookie = headers["Set-Cookie"].partition(";")[0]
        status, state, _ = site.ask("GET", "/state")
        assert (status, set(state)) == (
            200, {"sessions", "executions", "approvals", "records"},
        )  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.test"}, {"Host": "localhost:1"}, {"Origin": "http://evil.test"},
        {"Origin": "null"}, {"Origin": ""}, {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
    ids=str,
)  # fmt: skip
def test_other_sites_cannot_talk_to_it(daemon: Daemon, headers: dict[str, str]) -> None:
    with dashboard(daemon) as address:
        site = Site(address)
        assert site.log_in() == 200
        decision = {"approval": "ap-0", "digest": "d", "choice": "once"}
        assert site.ask("POST", "/decide", decision)[0] == 409  # the control: our own page may ask
        assert site.ask("POST", "/decide", decision, **headers)[0] == 403
        if headers != {"Origin": ""}:
            assert site.ask("GET", "/state", **headers)[0] == 403


def test_a_form_cannot_decide(daemon: Daemon) -> None:
    with dashboard(daemon) as address:
        site = Site(address)
        site.log_in()
        form = {"Content_Type": "text/plain"}
        assert site.ask("POST", "/decide", {"approval": "ap-0"}, **form)[0] == 400


@pytest.mark.requires("root")
def test_another_user_of_the_machine_is_refused(daemon: Daemon) -> None:
    """The address, with its token, is on the browser's command line."""
    fetch = (
        "import http.client, sys; c = http.client.HTTPConnection(sys.argv[1]);"
        "c.request('GET', '/'); print(c.getresponse().status)"
    )
    with dashboard(daemon) as address:
        host = Site(address).host
        for user, status in ((0, "200"), (65534, "403")):
            done = subprocess.run(
                ["/usr/bin/python3", "-I", "-c", fetch, host], user=user, group=user,
                extra_groups=[], cwd="/", capture_output=True, text=True, check=True, timeout=60,
            )  # fmt: skip
            assert done.stdout.strip() == status


def test_every_answer_has_a_strict_policy(daemon: Daemon) -> None:
    with dashboard(daemon) as address:
        for path in ("/", "/page.js", "/page.css", "/state", "/missing"):
            headers = Site(address).ask("GET", path)[2]
            assert headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"] == "no-store"


@pytest.mark.requires("chromium")
def test_a_person_decides_in_a_real_browser(daemon: Daemon, tmp_path: Path) -> None:
    attack = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    with (
        daemon.connect() as worker,
        connect_approver(daemon) as approver,
        dashboard(daemon) as address,
        running_browser() as page,
    ):
        worker.call("initialize", {"client": {"name": attack, "version": "1"}})
        open_session(worker, title=attack, budget={"max_cost_usd": 2})
        open_session(worker, title="child \u202e of it")
        workspace = {"preset": "workspace-write", "workspace": str(tmp_path)}
        number = worker.start("execute", {"argv": ["sh", "-c", "touch made", attack], **workspace})
        (shown,) = pending(approver)
        page.open(address)
        page.wait_for("document.querySelectorAll('.approval').length === 1")
        assert page.script("location.hash") == ""
        assert attack in page.text()  # shown as text
        assert "child \\u{202e} of it" in page.text()  # what turns text around is shown
        assert "\u202e" not in page.text()
        assert page.script("document.querySelectorAll('img').length") == 0
        button = "button[data-choice=once]"
        # A click that a script makes is no person's.
        page.script(f"document.querySelector('{button}').click()")
        page.wait_for(f"!document.querySelector('{button}').disabled")
        page.script(f"document.querySelector('{button}').click()")
        assert approver.call("approval/list")["approvals"][0]["approval"] == shown["approval"]
        folder = Path(os.environ.get("SANDBOXD_TEST_SCREENSHOTS") or tmp_path)
        page.screenshot(folder / "dashboard-waiting.png")
        page.click(button)
        result = worker.result(number)
        assert result["exit_code"] == 0
        page.wait_for("document.querySelectorAll('.approval').length === 0")
        page.wait_for("document.getElementById('records').innerText.includes('approval.resolved')")
        page.script(
            "(() => { const f = document.getElementById('filter'); f.value = 'execution.ended';"
            "f.dispatchEvent(new Event('input')); })()"
        )
        page.wait_for("document.querySelectorAll('#records tr').length >= 2")
        assert "approval.resolved" not in page.script(
            "document.getElementById('records').innerText"
        )
        page.screenshot(folder / "dashboard-done.png")
        assert page.script("document.title") == "sandboxd"
        refused = [
            event for event in page.events
            if "Content Security Policy" in json.dumps(event)
        ]  # fmt: skip
        assert refused == []
