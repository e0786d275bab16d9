"""Salt of generated features: a secret that enters the generator's key, so that no
worker can compute a feature row.

A data root has one salt, in a folder beside its datasets that a sandboxed worker does
not see. A manifest has the salt's digest alone. Equal recipes and equal salts give
equal bytes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from workloads.errors import DatasetError, InputError, require
from workloads.tempfolder import sync

#: Folder of the salt under a data root; a sandbox hides it.
FOLDER = ".secret"
_FILE = "salt"
_DRAWN_BYTES = 32
_DIGITS = re.compile(r"(?:[0-9a-fA-F]{2}){16,64}")


@dataclass(frozen=True)
class Salt:
    """A secret of 16 to 64 bytes."""

    secret: bytes = field(repr=False)

    @classmethod
    def drawn(cls) -> Salt:
        """Draw a salt at random."""
        return cls(secrets.token_bytes(_DRAWN_BYTES))

    @classmethod
    def given(cls, text: str) -> Salt:
        """Return the salt of a text from the user: hexadecimal digits, or the path of a
        file that holds them.

        Raises:
            InputError: the text is neither. The message does not show the text, which
                may be secret.
        """
        if _DIGITS.fullmatch(text):
            return cls(bytes.fromhex(text))
        fix = (
            "give 32 to 128 hexadecimal digits, or a file of them, like the salt of "
            f"another data root, {FOLDER}/salt"
        )
        try:
            content = Path(text).read_text(encoding="ascii").strip()
        except OSError as error:
            raise InputError.from_os(
                error, "--salt is no salt and no readable file", fix
            ) from None
        except ValueError:
            content = ""
        valid = bool(_DIGITS.fullmatch(content))
        require(valid, "the file of --salt holds no salt", fix)
        return cls(bytes.fromhex(content))

    @classmethod
    def of_root(cls, root: Path) -> Salt:
        """Return the salt of a data root; the first call draws and keeps it.

        Raises:
            DatasetError: the file of the salt is damaged, or cannot be read or written.
        """
        folder = root / FOLDER
        file = folder / _FILE
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(folder):
                if not file.exists():
                    _keep(cls.drawn(), file)
            content = file.read_text(encoding="ascii").strip()
        except OSError as error:
            fix = "choose another --data-root, or give --salt"
            fault = f"{file} cannot be read or written"
            raise DatasetError.from_os(error, fault, fix) from None
        except ValueError:
            content = ""
        fault = f"{file} holds no salt"
        valid = bool(_DIGITS.fullmatch(content))
        require(valid, fault, "remove it, so that another is drawn", DatasetError)
        return cls(bytes.fromhex(content))

    @property
    def digest(self) -> str:
        """Digest that does not reveal the salt, 16 hexadecimal digits."""
        return self._derived(b"digest").hex()

    def key(self, seed: int) -> int:
        """Return the generator's key for a seed, in [0, 2^64)."""
        return int.from_bytes(self._derived(f"features {seed}".encode()), "little")

    def _derived(self, purpose: bytes) -> bytes:
        return hashlib.blake2b(purpose, key=self.secret, digest_size=8).digest()


def _keep(salt: Salt, file: Path) -> None:
    """Write a salt that its owner alone can read, whole or not at all."""
    partial = file.with_name(f".{file.name}")
    partial.unlink(missing_ok=True)
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w", encoding="ascii") as out:
        out.write(salt.secret.hex() + "\n")
    sync(partial)
    partial.rename(file)
    sync(file.parent)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder within the block; a file system without locks has none."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
