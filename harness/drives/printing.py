"""A page as a tagged PDF, printed by the Chromium of this host."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

#: Names of browsers that print pages, the first one found is taken.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
INSTALL = "apt-get install chromium"
_TIMEOUT_S = 120.0
# A page contains all that it shows, so the browser asks no other host, and needs no
# sandbox for it (root has none).
_OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
    "--no-pdf-header-footer"
).split()
_NO_HOST = "--host-resolver-rules=MAP * ~NOTFOUND"
_DATE = re.compile(rb"/(CreationDate|ModDate) \(D:[^)]*\)")


def browser() -> str | None:
    """Return the path of a browser that prints pages; None where there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def printed(page: bytes) -> bytes | None:
    """Return a page (HTML) as a PDF with its title and its structure as tags; None if
    no browser prints it here."""
    program = browser()
    if program is None:
        return None
    with tempfile.TemporaryDirectory(prefix="outcore-print-") as folder:
        source = Path(folder, "page.html")
        target = Path(folder, "page.pdf")
        source.write_bytes(page)
        places = [f"--user-data-dir={folder}/profile", f"--print-to-pdf={target}"]
        with suppress(OSError, subprocess.SubprocessError):
            command = [program, *_OPTIONS, _NO_HOST, *places, source.as_uri()]
            subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S)
            return _DATE.sub(_no_date, target.read_bytes())
    return None


def _no_date(found: re.Match[bytes]) -> bytes:
    """Return blanks in place of a date, so that the same page gives the same bytes;
    offsets in the file stay."""
    return b" " * len(found[0])
