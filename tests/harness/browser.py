"""Chromium for tests: playwright with the system's browser, which resolves no host name."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

from playwright import sync_api as playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"]


class Browser:
    """One page of a browser.

    Attributes:
        errors: console errors and warnings, uncaught exceptions and policy violations.
        requests: addresses that the page requested, except `data:`, `blob:` and `about:`.
    """

    def __init__(self, width: int = 1280) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._driver = playwright.sync_playwright().start()
        self._chromium = self._driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        self.page = self._chromium.new_page(viewport={"width": width, "height": 900})
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._note)
        self.page.on("request", self._keep)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._chromium.close()
        self._driver.stop()

    def resize(self, width: int, height: int = 900) -> None:
        """Set the size of the window in CSS pixels."""
        self.page.set_viewport_size({"width": width, "height": height})

    def theme(self, name: str) -> None:
        """Set the reader's theme: `light` or `dark`."""
        self.page.emulate_media(color_scheme=name)

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file and wait until the document is complete."""
        self.page.goto(path.resolve().as_uri() + fragment)

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression (promises awaited)."""
        return self.page.evaluate(script)

    def wait_for(self, condition: str, seconds: float = 20.0) -> None:
        """Wait until a JavaScript expression is true; the page's policy forbids a polling script of the driver."""
        for _ in range(round(seconds / 0.05)):
            if self.run(f"Boolean({condition})"):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"still false after {seconds} s: {condition}; {self.errors}")

    def press(self, key: str) -> None:
        """Press and release a key."""
        self.page.keyboard.press(key)

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            self.errors.append(message.text)

    def _keep(self, request: Any) -> None:
        if not request.url.startswith(("data:", "blob:", "about:")):
            self.requests.append(request.url)
