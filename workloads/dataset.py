"""The on-disk dataset: open it, read its parts, verify them, list the datasets of a
folder."""

from __future__ import annotations

import difflib
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from workloads.arraytypes import Array, DType, Int64Array
from workloads.direct_files import advise_random, small_maps
from workloads.errors import DatasetError, InputError, require
from workloads.making.progress import Progress
from workloads.manifest import MANIFEST_NAME, PARTS, Manifest, Part
from workloads.npyfile import file_digest, read_header
from workloads.sampling.distinct import distinct

__all__ = ["PARTS", "Dataset", "Manifest", "Part", "find_dataset", "list_datasets"]

_MAKE_AGAIN = "`outcore data verify` names every fault; make or import it again"
_SPLITS: tuple[Part, ...] = ("train", "valid", "test")
_CHECK_CHUNK = 1 << 20  # values at a time
_CHECK_NODES = 1 << 24  # nodes whose splits are checked at a time


class Dataset:
    """A dataset on disk, opened read-only; holds no file open and no array in memory.

    Attributes:
        path, name: folder of the dataset, and the folder's name.
        num_nodes, num_edges: numbers of nodes, N, and of directed edges, E.
        dim: number of feature columns, D.
        num_classes: number of classes: labels are in [0, num_classes), or -1 for an
            unlabelled node.
        feature_dtype: element type of the feature rows, float32 or float16.
        index_dtype: element type of the neighbour lists, int32 or int64.
        row_bytes: bytes of one feature row.
        feature_bytes, topology_bytes: bytes of the feature table and of the neighbour
            lists (the data of `indices`).
        total_bytes: bytes of all `.npy` files.
        content: digest of the content, 16 hexadecimal digits, equal for equal bytes
            under any name or path.
        fingerprint: digest of the workload, 16 hexadecimal digits: `content`, but equal
            for every salt of generated features, whose values decide no read and no
            time.
        origin: `generated (KIND)`, `imported (FORMAT)`, or `unknown` for a dataset that
            other code wrote.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.name = path.name
        self.manifest = manifest
        self.num_nodes = manifest.num_nodes
        self.num_edges = manifest.num_edges
        self.dim = manifest.dim
        self.num_classes = manifest.num_classes
        self.fingerprint = manifest.fingerprint
        self.content = manifest.content
        self.feature_dtype: DType = np.dtype(manifest.feature_dtype)
        self.index_dtype: DType = np.dtype(manifest.index_dtype)
        self.row_bytes = self.dim * self.feature_dtype.itemsize
        self.feature_bytes = self.num_nodes * self.row_bytes
        self.topology_bytes = self.num_edges * self.index_dtype.itemsize
        self.total_bytes = sum(entry.bytes for entry in manifest.files.values())

    @property
    def origin(self) -> str:
        """Origin of the graph, by its manifest's recipe."""
        recipe = self.manifest.recipe
        if recipe.get("how") == "make":
            return f"generated ({recipe.get('kind')})"
        if recipe.get("how") == "import":
            return f"imported ({recipe.get('format')})"
        return "unknown"

    @property
    def salt(self) -> str:
        """Digest of the salt of generated features; `none` for a dataset of an older
        Outcore, which a worker can compute; empty for features that were not
        generated."""
        without = "none" if self.manifest.generates_features else ""
        return self.manifest.salt or without

    @classmethod
    def open(cls, path: Path | str) -> Dataset:
        """Open the dataset in folder `path` after cheap checks (manifest, file sizes,
        headers).

        Raises:
            DatasetError: no dataset is there, its manifest is invalid, or a file's size
                or header differs from it.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise DatasetError(
                f"there is no dataset at {folder}",
                "`outcore data list` shows what there is",
            )
        dataset = cls(folder.resolve(), Manifest.read(folder))
        for part in dataset.manifest.parts:
            if fault := dataset._cheap_fault(part):
                raise DatasetError(fault, _MAKE_AGAIN)
        return dataset

    def file(self, part: Part) -> Path:
        """Return the path of the part's `.npy` file."""
        return self.path / f"{part}.npy"

    def data_offset(self, part: Part) -> int:
        """Return the offset in bytes of the first element in the part's file, a
        multiple of 4096."""
        return self.manifest.files[part].data_offset

    def memmap(self, part: Part) -> Array:
        """Map the part read-only (an ordinary array where it is empty)."""
        return self.manifest.files[part].memmap(self.file(part))

    def load(self, part: Part) -> Array:
        """Load the part into memory.

        Raises:
            DatasetError: the file became shorter since it was opened.
        """
        entry = self.manifest.files[part]
        count = int(np.prod(entry.shape, dtype=np.int64))
        array = np.fromfile(
            self.file(part), dtype=entry.dtype, count=count, offset=entry.data_offset
        )
        if array.shape[0] != count:
            fault = (
                f"{self.file(part)} is truncated: {array.shape[0]} of {count} elements"
            )
            raise DatasetError(fault, _MAKE_AGAIN)
        return array.reshape(entry.shape)

    def original_ids(self, nodes: npt.ArrayLike) -> Int64Array:
        """Return the ids that nodes had in the imported graph.

        Args:
            nodes: ids of nodes in this dataset, integers in [0, N) of any shape, such
                as `n_id` of a mini-batch.

        Returns:
            int64 of the same shape, read from the mapped part `ids`. In a dataset
                without that part nodes kept their
            numbers, and these are returned.

        Raises:
            InputError: a node is not in the graph.
            DatasetError: an older import numbered the nodes anew and did not keep their
                ids.
        """
        self._require_ids()
        wanted = _integers(nodes, "nodes")
        self._check_nodes(wanted)
        if "ids" not in self.manifest.files:
            return wanted.copy()
        mapped = self.memmap("ids")
        advise_random(mapped)
        found: Int64Array = mapped[wanted]
        return found

    def nodes_of(self, original_ids: npt.ArrayLike) -> Int64Array:
        """Return the nodes that had these ids in the imported graph, the inverse of
        `original_ids`.

        Args:
            original_ids: integers [n], such as the ids beside a user's own labels.

        Returns:
            int64 [n], ids of nodes in this dataset; `ids` is read once, in pieces.

        Raises:
            InputError: no node had an id, or several nodes had it.
            DatasetError: as for `original_ids`.
        """
        self._require_ids()
        originals = _integers(original_ids, "original_ids").reshape(-1)
        if "ids" not in self.manifest.files:
            self._check_nodes(originals)
            return originals.copy()
        wanted = distinct(originals)
        # the last stands for ids that are not wanted
        nodes = np.full(len(wanted) + 1, -1, dtype=np.int64)
        times = np.zeros(len(wanted) + 1, dtype=np.int64)
        mapped = self.memmap("ids")
        with small_maps(mapped):
            for start in range(0, self.num_nodes, _CHECK_CHUNK):
                chunk = np.asarray(mapped[start : start + _CHECK_CHUNK])
                places = np.searchsorted(wanted, chunk)
                inside = places < len(wanted)
                inside[inside] = wanted[places[inside]] == chunk[inside]
                places[~inside] = len(wanted)
                nodes[places] = np.arange(start, start + len(chunk))
                times += np.bincount(places, minlength=len(times))
        for number in wanted[times[:-1] == 0][:1]:
            fault = f"no node of {self.name} had the id {number}"
            raise InputError(fault, "give ids of the imported graph")
        for number in wanted[times[:-1] > 1][:1]:
            fault = f"several nodes of {self.name} had the id {number}"
            raise InputError(fault, "give nodes by number")
        return nodes[np.searchsorted(wanted, originals)]

    def _require_ids(self) -> None:
        fault = (
            f"the nodes of {self.name} were numbered anew, and the older Outcore that "
            "did so kept no original ids"
        )
        valid = not self.manifest.lost_ids
        require(valid, fault, "import it again with --force", DatasetError)

    def _check_nodes(self, nodes: Int64Array) -> None:
        for node in (nodes.min(), nodes.max()) if nodes.size else ():
            fault = f"{self.name} has no node {node}"
            fix = f"give ids from 0 to {self.num_nodes - 1}"
            require(0 <= node < self.num_nodes, fault, fix)

    def verify(self, progress: Progress | None = None) -> list[str]:
        """Verify every byte: sizes, headers, XXH3, monotone `indptr`, ids and labels in
        range.

        `progress` is called with the part's name and the fraction of bytes read.
        Returns a sentence for each fault.
        """
        found: dict[Part, str] = {}
        faults: list[str] = []
        done = 0
        for part in self.manifest.parts:
            if progress:
                progress(part, done / max(1, self.total_bytes))
            if fault := self._cheap_fault(part):
                faults.append(fault)
            else:
                found[part] = file_digest(self.file(part))
            done += self.manifest.files[part].bytes
        sound = {
            part
            for part, digest in found.items()
            if digest == self.manifest.files[part].xxh3
        }
        faults += [
            self._digest_fault(part, digest)
            for part, digest in found.items()
            if part not in sound
        ]
        faults += self._content_faults(sound)
        if progress:
            progress("done", 1.0)
        return faults

    def _cheap_fault(self, part: Part) -> str | None:
        path = self.file(part)
        entry = self.manifest.files[part]
        try:
            size = path.stat().st_size
            if size != entry.bytes:
                verb = "truncated" if size < entry.bytes else "too long"
                return f"{path} is {verb}: {size} bytes, {entry.bytes} expected"
            with path.open("rb") as file:
                dtype, shape = read_header(file)
                offset = file.tell()
        except FileNotFoundError:
            return f"{path} is missing"
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
        except (ValueError, TypeError) as error:
            why = " ".join(str(error).split())  # numpy's has the padding of 4 KiB
            return f"{path} is corrupted: its npy header is not readable ({why})"
        if (dtype, shape, offset) != (
            np.dtype(entry.dtype),
            entry.shape,
            entry.data_offset,
        ):
            return (
                f"{path} is another file than the manifest's: {dtype} {shape} at "
                f"offset {offset}, expected {entry.dtype} {entry.shape} at "
                f"{entry.data_offset}"
            )
        return None

    def _digest_fault(self, part: Part, found: str) -> str:
        expected = self.manifest.files[part].xxh3
        for other in self.manifest.parts:
            if other != part and self.manifest.files[other].xxh3 == found:
                return f"{self.file(part)} is swapped: it holds what {other}.npy should"
        return f"{self.file(part)} is corrupted: XXH3 {found}, {expected} expected"

    def _content_faults(self, sound: set[Part]) -> list[str]:
        """Find faults inside files with the right digest, from a broken importer or
        generator or a forged manifest."""
        faults: list[str] = []
        if "indptr" in sound:
            indptr = self.memmap("indptr")
            if int(indptr[0]) != 0 or int(indptr[-1]) != self.num_edges:
                faults.append(
                    f"{self.file('indptr')} runs from {indptr[0]} to {indptr[-1]}, not "
                    f"0 to {self.num_edges}"
                )
            for start in range(0, self.num_nodes, _CHECK_CHUNK):
                chunk = indptr[start : start + _CHECK_CHUNK + 1]
                if bool((chunk[1:] < chunk[:-1]).any()):
                    at = start + int(np.argmax(chunk[1:] < chunk[:-1]))
                    faults.append(f"{self.file('indptr')} decreases after node {at}")
                    break
        nodes = (0, self.num_nodes)
        limits: dict[Part, tuple[int, int]] = {
            "indices": nodes,
            "labels": (-1, self.num_classes),
        }
        for part, (low, high) in (limits | dict.fromkeys(_SPLITS, nodes)).items():
            if part in sound and (fault := self._range_fault(part, low, high)):
                faults.append(fault)
        if not faults and {"labels", *_SPLITS} <= sound:
            faults += self._split_faults()
        return faults

    def _range_fault(self, part: Part, low: int, high: int) -> str | None:
        values = self.memmap(part)
        with small_maps(values):
            for start in range(0, values.shape[0], _CHECK_CHUNK):
                chunk = values[start : start + _CHECK_CHUNK]
                bad = (chunk < low) | (chunk >= high)
                if bool(bad.any()):
                    at = int(np.argmax(bad))
                    return (
                        f"{self.file(part)} holds {chunk[at]} at position "
                        f"{start + at}, outside [{low}, {high})"
                    )
        return None

    def _split_faults(self) -> list[str]:
        twice: set[Part] = set()
        unlabelled: set[Part] = set()
        labels = self.memmap("labels")
        ids_of = {part: self.memmap(part) for part in _SPLITS}
        with small_maps(labels, *ids_of.values()):
            # By ranges of nodes, so that memory does not grow with the graph.
            for first in range(0, self.num_nodes, _CHECK_NODES):
                taken = np.zeros(
                    min(_CHECK_NODES, self.num_nodes - first), dtype=np.uint8
                )
                for part, values in ids_of.items():
                    for start in range(0, values.shape[0], _CHECK_CHUNK):
                        chunk = values[start : start + _CHECK_CHUNK]
                        ids = chunk[(chunk >= first) & (chunk < first + len(taken))]
                        if (
                            bool(taken[ids - first].any())
                            or distinct(ids).shape[0] != ids.shape[0]
                        ):
                            twice.add(part)
                        taken[ids - first] = 1
                        if bool((labels[ids] < 0).any()):
                            unlabelled.add(part)
        kinds = (
            (twice, "twice, or one of another split"),
            (unlabelled, "without a label"),
        )
        return [
            f"{self.file(part)} names a node {what}"
            for part in _SPLITS
            for parts, what in kinds
            if part in parts
        ]


def _integers(values: npt.ArrayLike, what: str) -> Int64Array:
    """Return integers as int64; raises InputError for other values."""
    array = np.asarray(values)
    whole = array.dtype.kind in "iu" or array.size == 0
    fault = f"{what} is {array.dtype} {list(array.shape)}"
    require(whole, fault, "give whole numbers")
    if array.dtype == np.uint64:
        most = int(array.max(initial=0))
        fault = f"{what} holds {most}"
        require(most <= np.iinfo(np.int64).max, fault, "give numbers below 2^63")
    return array.astype(np.int64)


def list_datasets(root: Path | str) -> list[Dataset]:
    """List the datasets directly under `root`, by name, without other folders and
    damaged datasets."""
    folder = Path(root)
    if not folder.is_dir():
        return []
    found = []
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(".") and (path / MANIFEST_NAME).is_file():
            with suppress(DatasetError):
                found.append(Dataset.open(path))
    return found


def find_dataset(name: str, root: Path | str) -> Dataset:
    """Open a dataset by its name under `root`, or by the path of its folder; raises
    DatasetError where there is none (the fix offers the nearest name) or it is
    damaged."""
    under = Path(root) / name
    path = Path(name)
    for folder in (under, path):
        if (folder / MANIFEST_NAME).is_file():
            return Dataset.open(folder)
    if "/" in name or under.is_dir():
        return Dataset.open(path if "/" in name else under)
    names = [dataset.name for dataset in list_datasets(root)]
    if names:
        fix = f"there is {', '.join(names)}"
    else:
        fix = f"make one: `outcore data make {name} --kind kronecker`"
    for near in difflib.get_close_matches(name, names, n=1):
        fix = f"did you mean {near!r}?"
    fault = f"there is no dataset {name!r} under {root}"
    raise DatasetError(fault, fix)
