"""Git repositories made for tests of the gate."""

from __future__ import annotations

import subprocess
from pathlib import Path

_WHO = {
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@t",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@t",
}


def git(folder: Path, *arguments: str, date: str = "") -> str:
    """Run git in a folder."""
    import os

    when = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **_WHO, **when},
    )
    return done.stdout.strip()


def repository(folder: Path, files: dict[str, str] | None = None) -> Path:
    """Make a repository with one commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "first", files or {"a.txt": "1\n"})
    return folder


def commit(
    folder: Path, message: str, files: dict[str, str] | None = None, date: str = ""
) -> str:
    """Write files, commit, return the hash."""
    for name, text in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message, date=date)
    return git(folder, "rev-parse", "HEAD")
