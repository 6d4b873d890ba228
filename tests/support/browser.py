"""A real headless Chromium, driven through its debugging pipe (no port, no further program)."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.rpc import PATIENCE_S

Message = dict[str, Any]
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
    "--window-size=1200,1000",
)  # fmt: skip


class Page:
    """One tab."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in = to_browser, from_browser
        self._ids = itertools.count(1)
        self._buffer = b""
        self.events: list[Message] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Message:
        number = next(self._ids)
        message: Message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: Message = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> Message:
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._in], [], [], PATIENCE_S)
            assert readable, "the browser does not answer"
            data = os.read(self._in, 1 << 18)
            assert data, "the browser has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: Message = json.loads(line)
        return found

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def script(self, text: str) -> Any:
        done = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait_for(self, text: str) -> Any:
        """Until an expression is true in the page."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if found := self.script(text):
                return found
            time.sleep(0.05)
        raise AssertionError(f"not in time: {text}; the page: {self.text()[:2000]}")

    def text(self) -> str:
        found: str = self.script("document.body ? document.body.innerText : ''")
        return found

    def click(self, selector: str) -> None:
        """As a person would: the event is a trusted one."""
        where = self.script(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView(); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        at = {"x": where[0], "y": where[1], "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **at)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **at)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def running_browser() -> Iterator[Page]:
    profile = tempfile.mkdtemp(prefix="sbxd-browser-")
    browser_in, ours_out = os.pipe()
    ours_in, browser_out = os.pipe()
    command = ["chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"]

    # The browser reads descriptor 3 and writes 4; a shell moves ours there.
    shell = ["bash", "-c", f'exec "$@" 3<&{browser_in} 4>&{browser_out}', "bash", *command]
    process = subprocess.Popen(
        shell, pass_fds=(browser_in, browser_out), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": profile},
    )  # fmt: skip
    os.close(browser_in)
    os.close(browser_out)
    try:
        yield Page(ours_out, ours_in)
    finally:
        os.close(ours_out)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(ours_in)
        shutil.rmtree(profile, ignore_errors=True)
