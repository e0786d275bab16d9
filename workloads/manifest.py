"""Manifest of a dataset, `dataset.json`: content of the folder, recipe, and a digest
for every file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import xxhash
from pydantic import BaseModel, Field, ValidationError

from workloads.arraytypes import Array, ArrayShape, JsonDict
from workloads.errors import DatasetError

Part = Literal[
    "indptr",
    "indices",
    "features",
    "labels",
    "train",
    "valid",
    "test",
    "edge_weight",
    "ids",
]
OPTIONAL: tuple[Part, ...] = ("edge_weight", "ids")
"""Parts that a dataset may lack: `edge_weight`, [E] in the order of `indices`; `ids`,
[N], original ids of the nodes,
kept by an import that numbers the nodes anew."""
PARTS: tuple[Part, ...] = tuple(part for part in get_args(Part) if part not in OPTIONAL)
MANIFEST_NAME = "dataset.json"
RENUMBERED = "ids numbered anew"
"""Begin of the note of an import that numbered the nodes anew; before `ids`, nothing
kept their original ids."""
FEATURES_GENERATED = "features generated"
"""Begin of the note of an import that generated the features."""
SALT = "salt"
"""Key of a recipe with the digest of the salt of generated features; older datasets
have none."""
FORMAT_VERSION = 1
MAX_NODES = 3 * 10**9
"""Most nodes of a dataset: where neighbour lists are made, a pair of ids has to fit 63
bits."""
MAX_CLASSES = 1 << 20
"""Most classes of labels that are generated or imported."""
ALIGNMENT = 4096
"""Bytes to whose multiple headers are padded, so that direct reads of the data start
aligned on every disk."""

# Valid dtypes of each part; rank 1 for all but `features`.
ALLOWED_DTYPES: Mapping[Part, tuple[str, ...]] = {
    **dict.fromkeys(PARTS, ("int64",)),
    "indices": ("int32", "int64"),
    "features": ("float32", "float16"),
    "edge_weight": ("float32",),
    "ids": ("int64",),
}
_MAKE_AGAIN = "make or import it again"
# settings of a recipe whose content another setting has, as a digest
_NAMES = ("base", "source")


class FileEntry(BaseModel, extra="forbid", frozen=True):
    """Manifest entry of one `.npy` file."""

    dtype: str  # numpy's name of the element type
    shape: ArrayShape
    data_offset: int  # bytes of the padded header, a multiple of 4096
    bytes: int  # of the whole file
    # XXH3-64 of the whole file, 16 hexadecimal digits (as `xxhsum -H3` prints it)
    xxh3: str

    def memmap(self, path: Path) -> Array:
        """Map the data of the file read-only (an ordinary array where it is empty)."""
        if 0 in self.shape:
            return np.empty(self.shape, dtype=self.dtype)
        return np.memmap(
            path, dtype=self.dtype, mode="r", offset=self.data_offset, shape=self.shape
        )


class Manifest(BaseModel, extra="forbid", frozen=True):
    """Content of `dataset.json`."""

    format: Literal["outcore-dataset"] = "outcore-dataset"
    version: int = FORMAT_VERSION
    num_nodes: int = Field(ge=1)
    num_edges: int = Field(ge=0)
    dim: int = Field(ge=1)
    feature_dtype: str
    index_dtype: str
    # labels are in [0, num_classes), or -1 for an unlabelled node
    num_classes: int = Field(ge=1)
    files: dict[Part, FileEntry]
    # To make the dataset again: equal recipes give equal bytes. `salt`: digest of the
    # salt of generated features.
    recipe: JsonDict = Field(default_factory=dict)
    # remarks for users (duplicate edges removed, features generated, ...)
    notes: tuple[str, ...] = ()
    # Degree skew, clustering and homophily, of `result` and, after an expansion, of
    # `base`.
    stats: dict[str, dict[str, float | int | None]] = Field(default_factory=dict)
    created: str = ""

    @property
    def parts(self) -> tuple[Part, ...]:
        """Parts that the dataset has, in a fixed order; those of `PARTS` first."""
        return (*PARTS, *(part for part in OPTIONAL if part in self.files))

    @property
    def lost_ids(self) -> bool:
        """Whether the nodes were numbered anew by an older Outcore, which did not keep
        their original ids."""
        renumbered = any(note.startswith(RENUMBERED) for note in self.notes)
        return renumbered and "ids" not in self.files

    @property
    def settings(self) -> JsonDict:
        """The recipe without its salt."""
        return {name: value for name, value in self.recipe.items() if name != SALT}

    @property
    def salt(self) -> str:
        """Digest of the salt of generated features; empty without a salt."""
        return str(self.recipe.get(SALT, ""))

    @property
    def generates_features(self) -> bool:
        """Whether the features were generated, with or without a salt."""
        noted = any(note.startswith(FEATURES_GENERATED) for note in self.notes)
        return noted or self.recipe.get("how") == "make"

    @property
    def content(self) -> str:
        """Digest of counts and files, 16 hexadecimal digits: equal for datasets of
        equal bytes."""
        return self._digest({part: self.files[part].xxh3 for part in self.parts})

    @property
    def fingerprint(self) -> str:
        """Digest of the workload, 16 hexadecimal digits: `content`, but salted features
        count by their recipe, so that it is equal for every salt. Names of a base or a
        source do not count, their digests do."""
        if not self.salt:
            return self.content
        settings = {
            name: value for name, value in self.settings.items() if name not in _NAMES
        }
        recipe = xxhash.xxh3_64_hexdigest(json.dumps(settings, sort_keys=True).encode())
        digests = {part: self.files[part].xxh3 for part in self.parts}
        return self._digest({**digests, "features": f"salted {recipe}"})

    def _digest(self, digests: Mapping[Part, str]) -> str:
        parts = [
            f"{self.version}",
            f"{self.num_nodes}",
            f"{self.num_edges}",
            f"{self.dim}",
            f"{self.num_classes}",
        ]
        for part, digest in digests.items():
            parts.append(f"{part}:{self.files[part].dtype}:{digest}")
        return xxhash.xxh3_64_hexdigest("|".join(parts).encode())

    def write(self, folder: Path) -> None:
        """Write `dataset.json` into `folder`."""
        text = json.dumps(self.model_dump(mode="json"), indent=1) + "\n"
        (folder / MANIFEST_NAME).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read and check `dataset.json` of `folder`; raises DatasetError where it is
        missing, of another version, or not a manifest."""
        path = folder / MANIFEST_NAME
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            fault = f"{folder} is not a dataset (it holds no {MANIFEST_NAME})"
            raise DatasetError(
                fault, "`outcore data list` shows what there is"
            ) from None
        except OSError as error:
            fault = f"{path} cannot be read"
            raise DatasetError.from_os(error, fault) from None
        except ValueError as error:
            fault = f"{path} is damaged (not JSON: {error})"
            raise DatasetError(fault, _MAKE_AGAIN) from None
        if (
            isinstance(raw, dict)
            and raw.get("version", FORMAT_VERSION) != FORMAT_VERSION
        ):
            fault = (
                f"{path} has format version {raw['version']}, this Outcore reads "
                f"version {FORMAT_VERSION}"
            )
            raise DatasetError(fault, _MAKE_AGAIN)
        try:
            manifest = cls.model_validate(raw)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(step) for step in first["loc"]) or "top level"
            fault = f"{path} is damaged ({where}: {first['msg']})"
            raise DatasetError(fault, _MAKE_AGAIN) from None
        manifest.check(path)
        return manifest

    def check(self, path: Path) -> None:
        """Check that counts, dtypes and file entries agree with each other; raises
        DatasetError where they differ."""
        shapes: dict[Part, ArrayShape] = {
            "indptr": (self.num_nodes + 1,),
            "indices": (self.num_edges,),
            "features": (self.num_nodes, self.dim),
            "labels": (self.num_nodes,),
            "edge_weight": (self.num_edges,),
            "ids": (self.num_nodes,),
        }
        for part in self.parts:
            entry = self.files.get(part)
            if entry is None:
                fault = f"{path} lists no {part}"
                raise DatasetError(fault, _MAKE_AGAIN)
            if entry.dtype not in ALLOWED_DTYPES[part]:
                valid = " or ".join(ALLOWED_DTYPES[part])
                fault = f"{path}: {part} has dtype {entry.dtype}, not {valid}"
                raise DatasetError(fault, _MAKE_AGAIN)
            rank_is_right = len(entry.shape) == (2 if part == "features" else 1)
            if not rank_is_right or entry.shape != shapes.get(part, entry.shape):
                fault = (
                    f"{path}: {part} has shape {entry.shape}, which its counts forbid"
                )
                raise DatasetError(fault, _MAKE_AGAIN)
            data_bytes = (
                int(np.prod(entry.shape, dtype=np.int64))
                * np.dtype(entry.dtype).itemsize
            )
            if (
                entry.data_offset <= 0
                or entry.data_offset % ALIGNMENT
                or entry.bytes != entry.data_offset + data_bytes
            ):
                fault = f"{path}: {part} has a size that its shape forbids"
                raise DatasetError(fault, _MAKE_AGAIN)
        if (
            self.files["features"].dtype != self.feature_dtype
            or self.files["indices"].dtype != self.index_dtype
        ):
            raise DatasetError(
                f"{path}: feature_dtype or index_dtype differs from the files'",
                _MAKE_AGAIN,
            )
