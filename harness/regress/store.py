"""Stores of baselines: a plain folder, or a git branch that is written without changing
the working tree."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from harness.atomic import whole_file
from harness.regress.git import Repository
from workloads.errors import HostError, InputError

# `<fingerprint of the machine>/<commit>-<digest>.json`: other names are ignored, so
# none leads out of the store.
NAME = re.compile(r"[0-9a-f]{12}/[0-9a-f]{16}-[0-9a-f]{8}\.json")
_MOST_BYTES = 64 << 20
_NONE = "0" * 40


class FolderStore:
    """A store of small JSON files by name, those that match NAME, in a plain folder;
    links are refused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        found = (
            path.relative_to(self._folder).as_posix()
            for path in self._folder.glob("*/*.json")
        )
        return sorted(name for name in found if NAME.fullmatch(name))

    def read(self, name: str) -> bytes:
        """Return the content of an entry; raise InputError for a link, above 64 MiB, or
        if it cannot be read."""
        path = self._folder / name
        try:
            if path.is_symlink() or path.parent.is_symlink():
                raise InputError(
                    f"{path} is a link, which baselines never are", "remove it"
                )
            if path.stat().st_size > _MOST_BYTES:
                raise InputError(f"{path} is too large for a baseline", "remove it")
            return path.read_bytes()
        except OSError as error:
            raise InputError.from_os(error, f"{path} cannot be read") from error

    def write(self, name: str, text: str) -> str:
        """Write an entry; return its path."""
        with whole_file(self._folder / name, "the baseline") as partial:
            partial.write_text(text, encoding="utf-8")
        return str(self._folder / name)


class BranchStore:
    """The same store in a git branch of its own, made on the first write; the caller
    pushes it."""

    def __init__(self, repository: Repository, branch: str) -> None:
        if repository.maybe(
            "check-ref-format", "--branch", branch
        ) is None or branch.startswith("-"):
            raise InputError(
                f"{branch!r} is no name for a branch",
                "choose another, like outcore-baselines",
            )
        self._repository = repository
        self._branch = branch
        self._ref = f"refs/heads/{branch}"

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        listed = self._repository.maybe("ls-tree", "-r", "--name-only", self._ref)
        return sorted(
            name for name in (listed or "").splitlines() if NAME.fullmatch(name)
        )

    def read(self, name: str) -> bytes:
        """Return the content of an entry; raise InputError if it cannot be read."""
        found = self._repository.maybe("cat-file", "blob", f"{self._ref}:{name}")
        if found is None:
            raise InputError(
                f"{self._branch}:{name} cannot be read", "remove it from the branch"
            )
        return found.encode()

    def write(self, name: str, text: str) -> str:
        """Commit an entry to the branch; retry after a concurrent write and raise
        HostError after five."""
        git = self._repository
        blob = git.text("hash-object", "-w", "--stdin", given=text)
        own = (
            []
            if git.maybe("config", "user.email")
            else ["user.name=outcore", "user.email=outcore@localhost"]
        )
        who = [part for setting in own for part in ("-c", setting)]
        for _ in range(5):
            parent = git.maybe("rev-parse", "--verify", "--quiet", self._ref)
            with tempfile.TemporaryDirectory(prefix="outcore-index-") as folder:
                index = {"GIT_INDEX_FILE": f"{folder}/index"}
                git.text("read-tree", parent or "--empty", environment=index)
                git.text(
                    "update-index",
                    "--add",
                    "--cacheinfo",
                    f"100644,{blob},{name}",
                    environment=index,
                )
                tree = git.text("write-tree", environment=index)
            above = ["-p", parent] if parent else []
            commit = git.text(
                *who, "commit-tree", tree, *above, "-m", f"Baseline {name}"
            )
            if git.maybe("update-ref", self._ref, commit, parent or _NONE) is not None:
                return f"{self._branch}:{name}"
        raise HostError(
            f"branch {self._branch} is being written by others", "try again"
        )


Store = FolderStore | BranchStore
