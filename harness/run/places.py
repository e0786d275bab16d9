"""Folders that runs write to beside their records: scratch files, and artefacts that
systems prepare."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from workloads.errors import InputError, fault_of

SCRATCH_VARIABLE = "OUTCORE_SCRATCH"
ARTEFACTS_VARIABLE = "OUTCORE_ARTEFACTS"
_BELOW = ".outcore"


@dataclass(frozen=True)
class Places:
    """Folders of scratch files and of artefacts, which need not exist. By default both
    lie under the data root, on the disk of the datasets: data that a run reads from
    another disk makes it INVALID (rule 9)."""

    scratch: Path
    artefacts: Path

    @classmethod
    def below(cls, data_root: Path) -> Self:
        """Return the folders under a data root."""
        return cls(data_root / _BELOW / "scratch", data_root / _BELOW / "artefacts")

    @classmethod
    def of(
        cls, data_root: Path, scratch: Path | None = None, artefacts: Path | None = None
    ) -> Self:
        """Return the given folders, else those of the environment variables, else those
        under the data root."""
        default = cls.below(data_root)
        reported = [
            os.environ.get(name) for name in (SCRATCH_VARIABLE, ARTEFACTS_VARIABLE)
        ]
        named = [Path(text) if text else None for text in reported]
        return cls(
            scratch or named[0] or default.scratch,
            artefacts or named[1] or default.artefacts,
        )

    def scratch_folder(self) -> Path:
        """Return the folder of scratch files, made; raise InputError if it cannot be
        written."""
        return _made(self.scratch, "scratch files", "--scratch", SCRATCH_VARIABLE)

    def artefacts_of(self, system: str) -> Path:
        """Return the folder of a system's artefacts, made; raise InputError if it
        cannot be written."""
        name = system.replace(":", "-").replace(os.sep, "-")
        return _made(
            self.artefacts / name, "artefacts", "--artefacts", ARTEFACTS_VARIABLE
        )


def is_writable(folder: Path) -> bool:
    """Return whether this user may write to a folder that exists; False on a file
    system mounted read-only."""
    return os.access(folder, os.W_OK)


def _made(folder: Path, what: str, option: str, variable: str) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not is_writable(folder):
            read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
            code = errno.EROFS if read_only else errno.EACCES
            raise OSError(code, os.strerror(code))
    except OSError as error:
        fix = (
            f"give another folder by {option} or ${variable}, on the disk of the "
            "datasets if it can be written"
        )
        raise InputError(
            f"{what} cannot be written to {folder}: {fault_of(error)[0]}", fix
        ) from error
    return folder
