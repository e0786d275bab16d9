"""Text edge lists: every line is an edge, a comment, empty or a reason to refuse the
file; ids are digits."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError, OutcoreError
from workloads.importers import ImportOptions
from workloads.importers.edge_text import MAX_ID, EdgeText, edge_chunks
from workloads.importers.snap import open_snap
from workloads.importers.source import EDGES_A_CHUNK
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.make import MakeSpec, make_dataset
from workloads.making.node_data import NodeDataSpec

EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
TEXT = "".join(f"{u}\t{v}\n" for u, v in EDGES)


def saved(folder: Path, content: str | bytes, name: str = "g.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def edges_of(path: Path) -> list[tuple[int, int]]:
    return [(u, v) for part in EdgeText.open(path).pairs() for u, v in part.tolist()]


def imported(path: Path, **options: Any) -> Dataset:
    spec = ImportSpec(
        "snap",
        node_data=NodeDataSpec(dim=2, classes=2),
        fractions=(0.4, 0.2, 0.2),
        **options,
    )
    return import_dataset(
        path, path.parent / "data" / f"{len(list(path.parent.glob('data/*')))}", spec
    )


def lists(dataset: Dataset) -> list[list[int]]:
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    return [indices[a:b].tolist() for a, b in pairwise(indptr)]


def refused(path: Path, **options: Any) -> str:
    """Import, which has to fail with one printable sentence and leave nothing; return
    the sentence."""
    with pytest.raises(OutcoreError) as caught:
        imported(path, **options)
    message = str(caught.value)
    assert type(caught.value) in (InputError, DatasetError)
    assert caught.value.fix
    assert message.isprintable()
    assert "\ufffd" not in message
    assert list((path.parent / "data").glob("*")) == []
    return message


# --- lines
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '0\t1\t"Foo\n1\t2\tbar\n2\t3\tx\n3\t4\t5" disk\n4\t0\tend\n',
        '0 1 \'Foo\n1 2 "\n2 3 """\n3 4 \\\n4 0 "\n',
        '0,1,"Foo\n1,2,a "b, c\n2,3,\n3,4,"\n4,0\n',
        "0 1 # \"note\n1 2\n2 3 % 'x\n3 4#\n4 0\n",
        "0\t1\tx, y\n1\t2\t;\n2\t3\tz\n3\t4\t,\n4\t0\t\0\n",
    ],
)
def test_a_quote_joins_no_lines(tmp_path: Path, text: str) -> None:
    path = saved(tmp_path, text)
    assert edges_of(path) == EDGES
    assert lists(imported(path)) == [[4], [0], [1], [2], [3]]


def test_a_quote_in_a_table_of_ogb_is_refused(tmp_path: Path) -> None:
    raw = tmp_path / "g" / "raw"
    raw.mkdir(parents=True)
    tables = {"edge": "0,1\n1,0\n", "num-node-list": "2\n", "node-label": '"0\n1"\n0\n'}
    for name, text in tables.items():
        (raw / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(
        InputError, match=r"node-label.csv.gz is not a table of numbers"
    ):
        import_dataset(tmp_path / "g", tmp_path / "data", ImportSpec("ogb"))


@pytest.mark.parametrize(
    "word",
    [
        "7.0",
        "1e3",
        "1_000",
        "+7",
        "-7",
        "0x10",
        "７",
        "²",
        "7L",
        '"7"',
        "NaN",
        str(MAX_ID + 1),
        "1" * 20,
        "9" * 500,
        "7\xa0",
        "True",
        "",
    ],
)
def test_an_id_is_digits_alone_and_below_two_to_63(tmp_path: Path, word: str) -> None:
    for line in (f"{word} 8", f"8 {word}", f"{word},8", f"8,{word},x"):
        message = refused(saved(tmp_path, f"1{',' if ',' in line else ' '}2\n{line}\n"))
        assert "line 2" in message
        assert "write two ids a line" in message


def test_ids_of_nineteen_digits_stay_apart(tmp_path: Path) -> None:
    ids = [MAX_ID - 2, MAX_ID - 1, MAX_ID, 2**53, 2**53 + 1, 2**62 + 1]
    pairs = list(pairwise(ids))
    path = saved(tmp_path, "".join(f"{u} {v}\n" for u, v in pairs))
    assert edges_of(path) == pairs
    assert imported(path).num_nodes == 6
    assert imported(path).num_edges == 5


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n", " \n"])
@pytest.mark.parametrize("separator", ["\t", " ", " \t ", ",", ", ", ";", " ; "])
def test_separators_and_ends_of_lines_are_those_of_the_file(
    tmp_path: Path, separator: str, end: str
) -> None:
    rows = [f"{u}{separator}{v}" for u, v in EDGES]
    for text in (
        end.join(rows),
        end.join(["# c", *rows[:2], "", "% c", *rows[2:], ""]),
    ):
        for more in ("", f"{separator}7"):
            assert (
                edges_of(saved(tmp_path, text.replace(rows[0], rows[0] + more)))
                == EDGES
            )


@pytest.mark.parametrize(
    "text",
    [
        "0 1\n1,2\n",
        "0,1\n1 2\n",
        "0;1\n1,2\n",
        "1,5 2,5\n",
        "0,,1\n",
        "0 1\n2 3,4\n",
        "0:1\n",
    ],
)
def test_other_separators_within_a_file_are_refused(tmp_path: Path, text: str) -> None:
    assert "is not an edge" in refused(saved(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        (
            "0 1 5\n1 2 6\n",
            "left out: '5' and the like in 2 lines; to keep weights, import arrays or "
            "parquet",
        ),
        (
            "0,1\n1,2,0.5,x\n",
            "left out: '0.5,x' and the like in 1 lines; to keep weights",
        ),
        ("0 1 {'weight': 7}\n", "left out: \"{'weight': 7}\" and the like in 1 lines"),
        ("src,dst,year\n0,1,1999\n", "left out (year): '1999' and the like in 1 lines"),
        ("citing cited\n0 1\n", "edges lead from column citing to column cited"),
        ("0 1\n" * 5000 + "0 1 x\n", "left out: 'x' and the like in 1 lines"),
    ],
)
def test_columns_that_are_not_read_are_noted(
    tmp_path: Path, text: str, noted: str
) -> None:
    assert any(noted in note for note in imported(saved(tmp_path, text)).manifest.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",src,dst\n0,5,6\n", "line 1: ',src,dst' is not an edge"),
        (
            "id,source,target\n0,5,6\n",
            "has the columns 'id, source, target'; write the source first",
        ),
        ("dst src\n5 6\n", "has the columns 'dst, src'"),
        ("# ToNodeId\tFromNodeId\n5 6\n", "has the columns '# ToNodeId\\tFromNodeId'"),
        ("head,relation,tail\n5,1,6\n", "has the columns 'head, relation, tail'"),
        ("alice bob\ncarol dave\n1 2\n", "line 2: 'carol dave' is not an edge"),
        ("1 2\nsrc dst\n", "line 2: 'src dst' is not an edge"),
        (
            "0 1 2 3\n1 2\n2\n",
            "has lines of 1 to 4 ids, like lists of neighbours; write one edge a line",
        ),
        ("*Vertices 2\n*Arcs\n1 2\n", "is a graph in Pajek's format"),
        ("<graphml>\n", "is XML"),
        ("%%MatrixMarket matrix\n2 2 1\n1 2\n", "is a matrix in MatrixMarket's format"),
        ("c a comment\np edge 2 1\ne 1 2\n", "is not an edge"),
        ("1 2\n" + "7" * (3 << 20), "has a line of more than 1048576 bytes"),
        (b"1 2\n\x8b\xff\x00 3\n", "line 2 is not text"),
        ("\n\n# c\n", "holds no edge"),
    ],
)
def test_what_is_no_list_of_edges_is_refused(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    assert message in refused(saved(tmp_path, text))


# --- directions
# --------------------------------------------------------------------------------------

BOTH = [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]]
ONE = [[4], [0], [1], [2], [3]]


@pytest.mark.parametrize(
    "header",
    [
        "# Undirected graph",
        "# Undirected graph: ../../data/dblp.txt",
        "# undirected",
        "% sym unweighted",
        "% SYM positive",
        "# x\n#\n% an un-directed network",
        "# directed: false",
        "# {'directed': False}",
        "% is_directed=0",
        "# Directed=no",
        "#UNDIRECTED",
    ],
)
def test_a_header_that_states_an_undirected_graph_gives_both_directions(
    tmp_path: Path, header: str
) -> None:
    path = saved(tmp_path, f"{header}\n{TEXT}")
    both = imported(path)
    assert lists(both) == BOTH == lists(imported(path, symmetric=True))
    reasons = [
        note
        for note in both.manifest.notes
        if note.startswith("undirected, since the file has the line")
    ]
    assert len(reasons) == 1
    assert "every edge taken in both directions" in both.manifest.notes
    one = imported(path, symmetric=False)
    assert lists(one) == ONE
    assert any(
        note.startswith("--directed was given; the file has the line")
        for note in one.manifest.notes
    )
    base = MakeSpec(
        "fractal", base=str(path), expand=2, dim=2, classes=2, fractions=(0.4, 0.2, 0.2)
    )
    assert (
        make_dataset(tmp_path / "made", base).manifest.stats["base"]["num_edges"] == 10
    )


@pytest.mark.parametrize(
    "header",
    [
        "# Directed graph",
        "% asym positive",
        "# directed: true",
        "# no word of it",
        "# c\n1 1",
    ],
)
def test_without_such_a_header_a_line_is_a_directed_edge(
    tmp_path: Path, header: str
) -> None:
    path = saved(tmp_path, f"{header}\n{TEXT}")
    dataset = imported(path, keep_duplicates=True)
    assert dataset.num_edges in (5, 6)
    assert any(
        note.startswith("each line taken as one directed edge")
        for note in dataset.manifest.notes
    )
    both = imported(path, symmetric=True)
    contrary = any(
        note.startswith("--symmetric was given; the file has the line")
        for note in both.manifest.notes
    )
    assert contrary == ("directed" in header.lower() or "asym" in header)


def test_snaps_header_of_its_directed_graphs_states_a_directed_one(
    tmp_path: Path,
) -> None:
    path = saved(
        tmp_path,
        "# Directed graph (each unordered pair of nodes is saved once): "
        f"web-Google.txt\n{TEXT}",
    )
    assert lists(imported(path)) == ONE


@pytest.mark.parametrize(
    "header",
    [
        "# directed or undirected",
        "# this graph is not directed",
        "# Undirected graph\n# Directed graph",
        "# symmetric",
        "# each unordered pair of nodes is saved once",
        "# bi-directional links",
        "Source,Target,Type\n0,1,Undirected",
        "# converted from undirected to directed",
    ],
)
def test_a_header_that_leaves_directions_unclear_needs_an_option(
    tmp_path: Path, header: str
) -> None:
    text = TEXT.replace("\t", ",") if "," in header else TEXT
    path = saved(tmp_path, f"{header}\n{text}")
    message = refused(path)
    assert "does not make clear whether its edges are directed" in message
    assert "--symmetric" in message
    assert "--directed" in message
    assert lists(imported(path, symmetric=True)) == BOTH
    assert lists(imported(path, symmetric=False)) == ONE


def test_a_list_of_two_sorts_of_nodes_is_refused_whatever_the_options(
    tmp_path: Path,
) -> None:
    path = saved(tmp_path, f"% bip unweighted\n{TEXT}")
    for symmetric in (None, True, False):
        assert "numbers two sorts of nodes apart" in refused(path, symmetric=symmetric)


@pytest.mark.parametrize(
    "text",
    [
        "0 1\n1 2\n# Undirected graph\n",
        "0,1,Directed\n1,2,Undirected\n",
        'a,b,type\n0,1,"directed"\n1,2,"undirected",\n',
    ],
)
def test_an_undirected_edge_or_graph_below_the_first_edge_is_no_directed_one(
    tmp_path: Path, text: str
) -> None:
    path = saved(tmp_path, text)
    assert "give --symmetric to take every edge both ways, or --directed" in refused(
        path
    )
    assert lists(imported(path, symmetric=True)) == [[1], [0, 2], [1]]
    assert lists(imported(path, symmetric=False)) == [[], [0], [1]]


def test_a_column_of_titles_states_no_direction(tmp_path: Path) -> None:
    path = saved(
        tmp_path, "0\t1\tgraphs\n1\t2\tOn undirected graphs\n2\t0\tundirected # paths\n"
    )
    assert lists(imported(path)) == [[2], [0], [1]]


# --- compression and encodings
# --------------------------------------------------------------------------------------

HALF = len(TEXT) // 2
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "gzip of two members": lambda data: (
        gzip.compress(data[:HALF]) + gzip.compress(data[HALF:])
    ),
    "bzip2": bz2.compress,
    "bzip2 of two streams": lambda data: (
        bz2.compress(data[:HALF]) + bz2.compress(data[HALF:])
    ),
    "xz": lzma.compress,
    "xz of two streams, padded": lambda data: (
        lzma.compress(data[:HALF]) + b"\0" * 8 + lzma.compress(data[HALF:])
    ),
    "gzip of xz": lambda data: gzip.compress(lzma.compress(data)),
}


@pytest.mark.parametrize("name", ["g.txt", "g.GZ", "g.txt.gz", "g.bz2", "g"])
@pytest.mark.parametrize("packing", PACKED)
def test_compression_is_known_by_the_first_bytes(
    tmp_path: Path, packing: str, name: str
) -> None:
    assert edges_of(saved(tmp_path, PACKED[packing](TEXT.encode()), name)) == EDGES


def tarred(data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo("g.txt")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("g.txt", data)
    return file.getvalue()


OTHERS = {
    "tar": (tarred(TEXT.encode()), "is packed by tar; unpack it first: tar xf PATH"),
    "tar.gz": (
        gzip.compress(tarred(TEXT.encode())),
        "is packed by tar; unpack it first: tar xf PATH",
    ),
    "tar.xz": (lzma.compress(tarred(TEXT.encode())), "is packed by tar"),
    "zip": (zipped(TEXT.encode()), "is packed by zip; unpack it first: unzip PATH"),
    "zstd": (
        b"\x28\xb5\x2f\xfd" + b"\x04" * 300,
        "is packed by zstd; unpack it first: zstd -d PATH",
    ),
    "lz4": (b"\x04\x22\x4d\x18" + b"\x04" * 300, "is packed by lz4"),
    "7z": (b"7z\xbc\xaf\x27\x1c" + b"\x04" * 300, "is packed by 7z"),
    "lzma": (
        lzma.compress(TEXT.encode(), lzma.FORMAT_ALONE),
        "is packed by lzma; unpack it first: xz --format=lzma -d",
    ),
    "lzip": (
        b"LZIP\x01" + b"\x04" * 300,
        "is packed by lzip; unpack it first: lzip -d",
    ),
    "lzop": (b"\x89LZO\x00" + b"\x04" * 300, "is packed by lzop"),
    "compress": (b"\x1f\x9d\x90\x30", "is packed by compress"),
    "layers": (
        gzip.compress(gzip.compress(gzip.compress(gzip.compress(b"0 1\n")))),
        "is packed several times over",
    ),
    "binary": (np.arange(1000).tobytes(), "is not text"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_packings_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    packed, message = OTHERS[kind]
    assert message in refused(saved(tmp_path, packed))


@pytest.mark.parametrize("packing", [name for name in PACKED if name != "plain"])
def test_damage_to_compressed_data_is_never_the_end(
    tmp_path: Path, packing: str
) -> None:
    whole = PACKED[packing](TEXT.encode())
    for at in range(len(whole) - 1):
        data = bytearray(whole)
        data[at] ^= 0xFF
        for damaged in (bytes(data), whole[: at + 1]):
            try:
                # in a name or a time of the header
                assert edges_of(saved(tmp_path, damaged)) == EDGES
            except OutcoreError as error:
                assert str(error).isprintable()


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "latin-1"]
)
def test_encodings_with_a_mark_are_read(tmp_path: Path, encoding: str) -> None:
    mark = {"utf-16-le": "\ufeff", "utf-16-be": "\ufeff"}.get(encoding, "")
    text = "# Gerät\n" + TEXT.replace("1\n", "1\tGerät\n")
    assert edges_of(saved(tmp_path, (mark + text).encode(encoding))) == EDGES


def test_encodings_that_are_not_known_are_refused(tmp_path: Path) -> None:
    for data in (
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16")[:-1],
        TEXT.encode("cp037"),
    ):
        assert "text" in refused(saved(tmp_path, data))


def test_a_compressed_file_of_another_format_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "g"
    folder.mkdir()
    np.save(folder / "edge_index.npy", np.array(EDGES).T)
    for name, fix in (("gzip", "gzip -d"), ("xz", "xz -d"), ("bzip2", "bzip2 -d")):
        data = PACKED[name]((folder / "edge_index.npy").read_bytes())
        (tmp_path / name).mkdir()
        saved(tmp_path / name, data, "edge_index.npy")
        with pytest.raises(
            DatasetError,
            match=f"edge_index.npy is packed by {name}; unpack it first: {fix}",
        ):
            import_dataset(tmp_path / name, tmp_path / "data", ImportSpec("arrays"))
    archive = saved(tmp_path, gzip.compress(tarred(b"")), "papers.tar.gz")
    for format_name in ("ogb", "igb", "npz", "pyg", "graphbolt", "parquet", "arrays"):
        with pytest.raises(
            InputError,
            match=r"papers.tar.gz is packed by tar; unpack it first: tar xf PATH",
        ):
            import_dataset(archive, tmp_path / "data", ImportSpec(format_name))


# --- long files, and any file
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "utf-16"])
def test_lines_across_the_borders_of_blocks_stay_whole(
    tmp_path: Path, encoding: str
) -> None:
    ids = (
        np.random.default_rng(0).integers(0, 1 << 62, (60_000, 2))
        >> np.arange(0, 60_000)[:, None] % 60
    )
    text = "\r\n".join(f'{u}\t{v}\t"{u % 7}' for u, v in ids.tolist())
    text_file = EdgeText.open(saved(tmp_path, text.encode(encoding)))
    np.testing.assert_array_equal(np.concatenate(list(text_file.pairs())), ids)
    assert (text_file.num_lines, text_file.num_edges, text_file.num_wide) == (
        60_000,
        60_000,
        60_000,
    )


def test_chunks_are_as_long_as_those_of_weights(tmp_path: Path) -> None:
    count = EDGES_A_CHUNK + 10
    path = saved(tmp_path, "0,1\n" * count)
    assert [len(sources) for sources, _ in edge_chunks(path)] == [EDGES_A_CHUNK, 10]


def reference(text: str, sign: str) -> list[tuple[int, int]] | None:
    """Read an edge list line by line; None where a line is neither an edge, a comment
    nor empty."""
    edges = []
    between, end = (
        (rf"[ \t]*{sign}[ \t]*", rf"[ \t]*([{sign}#%].*)?")
        if sign
        else (r"[ \t]+", r"([ \t].*|[#%].*)?")
    )
    for line in re.split("\r\n|\r|\n", text):
        if line.strip(" \t") and line.strip(" \t")[0] not in "#%":
            found = re.fullmatch(
                rf"[ \t]*([0-9]{{1,19}}){between}([0-9]{{1,19}}){end}", line
            )
            if found is None or max(int(found[1]), int(found[2])) > MAX_ID:
                return None
            edges.append((int(found[1]), int(found[2])))
    return edges


IDS = st.one_of(
    st.integers(0, 20), st.integers(0, 2**63 - 1), st.integers(2**63 - 3, 2**63 + 1)
).map(str)
ODD = st.sampled_from(
    ["7.0", "1e3", "1_0", "+7", "-1", "0x1", "７", '"7"', "", "x", "nan"]
)
TAILS = st.one_of(st.just(""), st.text("abc\"'\\,;#% \t\0é｡", max_size=6))
GAPS = st.sampled_from(["", " ", "\t", "  "])


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a text of lines, most of them edges, and its separator."""
    sign = draw(st.sampled_from(["", ",", ";"]))
    lines = [
        draw(st.sampled_from(["", "# c", '% "', "#"]))
        for _ in range(draw(st.integers(0, 3)))
    ]
    lines.append(f"0{sign or ' '}1")
    words = st.one_of(*[IDS] * 12, ODD)
    for _ in range(draw(st.integers(0, 12))):
        between = draw(GAPS) + (sign or draw(st.sampled_from([" ", "\t"]))) + draw(GAPS)
        edge = (
            draw(GAPS)
            + draw(words)
            + between
            + draw(words)
            + draw(st.sampled_from(["", sign or " "]))
            + draw(TAILS)
        )
        lines.append(
            draw(st.sampled_from([edge, edge, edge, edge, "", " ", '# "c', "%"]))
        )
    ends = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    return ends.join(lines) + draw(st.sampled_from(["", ends])), sign


@settings(max_examples=150, deadline=None)
@given(
    texts(),
    st.sampled_from(list(PACKED)),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_any_list_is_read_as_a_short_reader_does_or_refused(
    drawn: tuple[str, str], packing: str, encoding: str
) -> None:
    text, sign = drawn
    expected = reference(text, sign)
    with tempfile.TemporaryDirectory() as folder:
        path = saved(Path(folder), PACKED[packing](text.encode(encoding)))
        if expected is None:
            with pytest.raises(InputError, match=r"line [0-9]+"):
                edges_of(path)
            return
        assert edges_of(path) == expected
        source = open_snap(path, ImportOptions(Path(folder)))
        names = sorted({node for edge in expected for node in edge})
        read = [
            (names[u], names[v])
            for us, vs in source.edges()
            for u, v in zip(us.tolist(), vs.tolist(), strict=True)
        ]
        assert read == expected
        assert source.num_nodes == len(names)


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=60).map(lambda tail: b"0 1\n2 3\n" + tail)
    | st.binary(max_size=60)
)
def test_any_bytes_are_a_list_of_edges_or_one_sentence(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = saved(Path(folder), data)
        try:
            text = EdgeText.open(path)
            edges = sum(map(len, text.pairs()))
        except OutcoreError as error:
            assert str(error).isprintable()
            assert error.fix
            return
        lines = [
            line.strip(b" \t")
            for line in re.split(rb"\r\n|\r|\n", data.removeprefix(b"\xef\xbb\xbf"))
        ]
        assert edges == sum(
            bool(line) and line[:1] not in b"#%" for line in lines
        ) - bool(text.header.columns)
