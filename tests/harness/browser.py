"""Chromium for tests: playwright with the system's browser, which resolves no host
name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from axe_playwright_python import sync_playwright as axe
from playwright import sync_api as playwright

from harness.drives.printing import browser

CHROMIUM = browser()
#: Widths of a phone, a laptop and a large screen in CSS pixels.
WIDTHS = (400, 1200, 1600)
#: Texts cut off by a box that neither scrolls nor shows what runs over it; not texts
#: for screen readers alone.
CLIPPED = """(places) => [...document.querySelectorAll(places)].filter((box) => {
  const look = getComputedStyle(box);
  const cuts = ["hidden", "clip"].includes(look.overflowX) && box.clientWidth > 1;
  return cuts && box.checkVisibility() && !box.closest(".chart, svg, select")
    && box.scrollWidth > box.clientWidth + 1 && box.textContent.trim();
}).map((box) => box.outerHTML.slice(0, 120))"""
#: Charts take the window's new size a moment later; a page without them has it in the
#: next frame.
SETTLED = """new Promise((done) =>
  document.querySelector(".chart") ? setTimeout(done, 300) : requestAnimationFrame(done))"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",
]


class Browser:
    """One page of a browser.

    Attributes:
        errors: console errors and warnings, uncaught exceptions and policy violations.
        requests: addresses that the page requested, except `data:`, `blob:` and
            `about:`.
    """

    def __init__(self, width: int = 1280) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._driver = playwright.sync_playwright().start()
        self._chromium = self._driver.chromium.launch(
            executable_path=CHROMIUM, args=OPTIONS
        )
        self.page = self._chromium.new_page(viewport={"width": width, "height": 900})
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._note)
        self.page.on("request", self._keep)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
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
        """Wait until a JavaScript expression is true; the page's policy forbids a
        polling script of the driver."""
        for _ in range(round(seconds / 0.05)):
            if self.run(f"Boolean({condition})"):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(
            f"still false after {seconds} s: {condition}; {self.errors}"
        )

    def clipped(
        self, widths: Iterable[int] = WIDTHS, places: str = "main *, header *"
    ) -> list[str]:
        """Return the boxes that cut off text, and the widths at which the page is wider
        than the window."""
        found = []
        for width in widths:
            self.resize(width)
            self.run(SETTLED)
            if wider := self.run(OVERFLOW):
                found.append(f"{wider} px wider than {width} px")
            boxes = self.page.evaluate(CLIPPED, places)
            found += [f"at {width} px: {box}" for box in boxes]
        return found

    def violations(self) -> list[tuple[str, str]]:
        """Return axe's findings, each as its rule and the first element that breaks
        it."""
        found = axe.Axe().run(self.page).response["violations"]
        return [(one["id"], one["nodes"][0]["html"][:200]) for one in found]

    def press(self, key: str) -> None:
        """Press and release a key."""
        self.page.keyboard.press(key)

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            self.errors.append(message.text)

    def _keep(self, request: Any) -> None:
        if not request.url.startswith(("data:", "blob:", "about:")):
            self.requests.append(request.url)
