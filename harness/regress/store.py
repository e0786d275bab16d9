"""Where baselines lie: a plain folder, or a branch of the git repository that is written without touching the tree."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Protocol

from harness.atomic import whole_file
from harness.regress.git import Repository
from workloads.errors import HostError, InputError

# `<fingerprint of the machine>/<commit>-<digest>.json`: nothing else is read, so no name leads elsewhere.
NAME = re.compile(r"[0-9a-f]{12}/[0-9a-f]{16}-[0-9a-f]{8}\.json")
_MOST_BYTES = 64 << 20
_NONE = "0" * 40


class Store(Protocol):
    """Small JSON files by name."""

    def names(self) -> list[str]:
        """Every name that is one of NAME, sorted."""

    def read(self, name: str) -> bytes:
        """The content.

        Raises:
            InputError: it cannot be read.
        """

    def write(self, name: str, text: str) -> str:
        """Keep it, whole or not at all; returns where."""


class FolderStore:
    """A plain folder. Links in it are not followed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Every entry's name."""
        found = (path.relative_to(self._folder).as_posix() for path in self._folder.glob("*/*.json"))
        return sorted(name for name in found if NAME.fullmatch(name))

    def read(self, name: str) -> bytes:
        """One entry."""
        path = self._folder / name
        try:
            if path.is_symlink() or path.parent.is_symlink():
                raise InputError(f"{path} is a link, which baselines never are", "remove it")
            if path.stat().st_size > _MOST_BYTES:
                raise InputError(f"{path} is too large for a baseline", "remove it")
            return path.read_bytes()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}", "see to its permissions") from error

    def write(self, name: str, text: str) -> str:
        """Keep one entry."""
        with whole_file(self._folder / name, "the baseline") as partial:
            partial.write_text(text, encoding="utf-8")
        return str(self._folder / name)


class BranchStore:
    """A branch that holds nothing but baselines; made on the first write. Pushing it is the caller's."""

    def __init__(self, repository: Repository, branch: str) -> None:
        if repository.maybe("check-ref-format", "--branch", branch) is None or branch.startswith("-"):
            raise InputError(f"{branch!r} is no name for a branch", "choose another, like outcore-baselines")
        self._repository = repository
        self._branch = branch
        self._ref = f"refs/heads/{branch}"

    def names(self) -> list[str]:
        """Every entry's name."""
        listed = self._repository.maybe("ls-tree", "-r", "--name-only", self._ref)
        return sorted(name for name in (listed or "").splitlines() if NAME.fullmatch(name))

    def read(self, name: str) -> bytes:
        """One entry."""
        found = self._repository.maybe("cat-file", "blob", f"{self._ref}:{name}")
        if found is None:
            raise InputError(f"{self._branch}:{name} cannot be read", "remove it from the branch")
        return found.encode()

    def write(self, name: str, text: str) -> str:
        """Keep one entry: a new commit on the branch, retried where somebody else wrote in between."""
        git = self._repository
        blob = git.text("hash-object", "-w", "--stdin", given=text)
        who = (
            []
            if git.maybe("config", "user.email")
            else ["-c", "user.name=outcore", "-c", "user.email=outcore@localhost"]
        )
        for _ in range(5):
            parent = git.maybe("rev-parse", "--verify", "--quiet", self._ref)
            tree = self._tree(parent, name, blob)
            above = ["-p", parent] if parent else []
            commit = git.text(*who, "commit-tree", tree, *above, "-m", f"Baseline {name}")
            if git.maybe("update-ref", self._ref, commit, parent or _NONE) is not None:
                return f"{self._branch}:{name}"
        raise HostError(f"branch {self._branch} is being written by others", "try again")

    def _tree(self, parent: str | None, name: str, blob: str) -> str:
        """The branch's tree with one more file, by an index of its own."""
        with tempfile.TemporaryDirectory(prefix="outcore-index-") as folder:
            index = {"GIT_INDEX_FILE": os.path.join(folder, "index")}  # noqa: PTH118
            git = self._repository
            git.text("read-tree", *([parent] if parent else ["--empty"]), environment=index)
            git.text("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", environment=index)
            return git.text("write-tree", environment=index)
