"""Git queries of the gate: commits, uncommitted changes, worktrees, trailers; each
error is one sentence."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.records.environment import trust_fix
from workloads.errors import HostError, InputError

# In a commit's message: `Outcore-Baseline: all` or `Outcore-Baseline: ginex, diskgnn`.
TRAILER = "Outcore-Baseline"


class Repository:
    """A git checkout, by a folder inside it; raises InputError if there is none,
    HostError if git is not installed or refuses the checkout of another user."""

    def __init__(self, path: Path) -> None:
        self._at = path
        asked = self._git("rev-parse", "--show-toplevel")
        if fix := trust_fix(asked.stderr):
            raise HostError(
                f"git refuses the checkout at {path}, which another user owns", fix
            )
        # A folder's name may be no UTF-8, unlike the text of `_git`.
        top = os.fsdecode(asked.output.rstrip(b"\n"))
        if asked.returncode:
            raise InputError(
                f"{path} is not inside a git checkout",
                "run it in your clone, or name it by --repository",
            )
        self.path = self._at = Path(top)

    def commit(self, ref: str) -> str:
        """Return the full hash of a commit; raise InputError if there is none, perhaps
        since the clone is shallow."""
        if ref.startswith("-"):
            raise InputError(
                f"{ref!r} is not a commit", "give a branch, a tag or a hash"
            )
        found = self.maybe(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )
        if found is not None:
            return found
        if self.maybe("rev-parse", "--is-shallow-repository") == "true":
            raise InputError(
                f"commit {ref} is not in this shallow clone",
                "fetch it: git fetch --unshallow (on GitHub: actions/checkout with "
                "fetch-depth: 0)",
            )
        raise InputError(
            f"there is no commit {ref!r} in {self.path}",
            "see git log --oneline, or fetch it",
        )

    def committed_at(self, commit: str) -> int:
        """Return a commit's committer date in seconds since 1970."""
        return int(self.text("show", "-s", "--format=%ct", commit))

    def line(self, commit: str) -> str:
        """Return a commit's short hash and subject."""
        return self.text("show", "-s", "--format=%h %s", commit)

    def between(self, base: str, head: str) -> list[str]:
        """Return the hashes of head's commits that base lacks, newest first."""
        return self.text("rev-list", "--topo-order", f"{base}..{head}").splitlines()

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Return whether a commit is in the history of another."""
        return self.maybe("merge-base", "--is-ancestor", older, newer) is not None

    def order(self, commits: Sequence[str]) -> dict[str, int]:
        """Return each commit's index in the history of HEAD, oldest first; other
        commits are left out."""
        known = self.text("rev-list", "--topo-order", "--reverse", "HEAD").splitlines()
        place = {commit: index for index, commit in enumerate(known)}
        return {commit: place[commit] for commit in commits if commit in place}

    def declared(self, base: str, head: str) -> frozenset[str]:
        """Return the systems, or `all`, whose new baselines commits after `base`, up to
        `head`, declare by trailers."""
        out = self.text(
            "log",
            f"--format=%(trailers:key={TRAILER},valueonly,separator=%x2C)",
            f"{base}..{head}",
        )
        return frozenset(
            part.split("(")[0].strip()
            for line in out.splitlines()
            for part in line.split(",")
        ) - {""}

    def add_worktree(self, folder: Path, commit: str) -> None:
        """Check `commit` out in `folder`, as a worktree of this checkout; raise
        HostError if git cannot."""
        self.maybe("worktree", "prune")
        done = self._git(
            "worktree", "add", "--force", "--detach", "--quiet", str(folder), commit
        )
        if done.returncode:
            raise HostError(
                f"no worktree of {commit[:12]} can be made: {_last(done.stderr)}",
                "fix the git checkout",
            )

    def remove_worktree(self, folder: Path) -> None:
        """Remove a worktree and git's registration of it."""
        self._git("worktree", "remove", "--force", str(folder))
        self.maybe("worktree", "prune")

    def maybe(self, *arguments: str) -> str | None:
        """Return the output of a git command; None if it failed."""
        done = self._git(*arguments)
        return done.stdout.strip() if done.returncode == 0 else None

    def text(
        self,
        *arguments: str,
        given: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Return the output of git, given standard input and further variables; raise
        HostError if it failed."""
        done = self._git(*arguments, given=given, environment=environment)
        if done.returncode:
            fix = trust_fix(done.stderr) or "correct the git checkout"
            raise HostError(f"git {arguments[0]} failed: {_last(done.stderr)}", fix)
        return done.stdout.strip()

    def _git(
        self,
        *arguments: str,
        given: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> _Answer:
        command = ["git", "-C", str(self._at), *arguments]
        variables = {**os.environ, **(environment or {})}
        content = None if given is None else given.encode()
        try:
            done = subprocess.run(
                command, input=content, capture_output=True, env=variables
            )
        except FileNotFoundError as error:
            raise HostError("git is not installed", "apt-get install git") from error
        return _Answer(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class _Answer:
    """Exit code and output of a git command, whatever bytes the commits hold."""

    returncode: int
    output: bytes
    errors: bytes

    @property
    def stdout(self) -> str:
        """Output as text: subjects need not be UTF-8, and what is not is replaced."""
        return self.output.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """Messages as text."""
        return self.errors.decode(errors="replace")


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["it gave no reason"])[-1]


def checkout(path: Path) -> Repository | None:
    """Return the checkout that holds a folder; None outside of one or without git."""
    try:
        return Repository(path)
    except (HostError, InputError):
        return None
