"""`outcore data trace`: miss ratios by policy and cache size, sizes as shares, bytes or
rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.cli import build_app
from tests.support import make_tiny


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    make_tiny(folder / "d")
    return folder


def trace(root: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(
        build_app(), ["data", "trace", "d", "--data-root", str(root), *arguments]
    )
    return (
        result.exit_code,
        result.output
        if result.exception is None
        else f"{result.output}{result.exception}",
    )


def test_miss_ratios_by_policy_and_size(root: Path) -> None:
    code, output = trace(
        root,
        "--sizes",
        "10%,100,64KiB",
        "--fanout",
        "5,5",
        "--batch-size",
        "50",
        "--json",
    )
    assert code == 0
    found = json.loads(output)
    # 64 KiB hold 1,024 rows of 16 float32.
    assert found["sizes"] == [100, 200, 1024]
    assert found["batches"] == 8
    by_policy = {entry["policy"]: entry for entry in found["policies"]}
    assert set(by_policy) == {
        "belady",
        "lru",
        "fifo",
        "lfu",
        "clock",
        "sieve",
        "s3-fifo",
        "degree",
    }
    for entry in by_policy.values():
        reads = [
            misses + fills
            for misses, fills in zip(entry["misses"], entry["fills"], strict=True)
        ]
        assert all(
            best <= other
            for best, other in zip(by_policy["belady"]["misses"], reads, strict=True)
        )
        assert entry["miss_ratio"] == [
            misses / found["accesses"] for misses in entry["misses"]
        ]


def test_the_same_workload_gives_the_same_trace(root: Path) -> None:
    chosen = (
        "--policies",
        "lru",
        "--sizes",
        "5%",
        "--fanout",
        "5,5",
        "--batch-size",
        "50",
        "--json",
    )

    def misses(*more: str) -> object:
        return json.loads(trace(root, *chosen, *more)[1])["policies"][0]["misses"]

    assert misses() == misses("--threads", "3") != misses("--seed", "1")


def test_people_get_a_table(root: Path) -> None:
    code, output = trace(
        root,
        "--policies",
        "belady,degree",
        "--sizes",
        "5%",
        "--fanout",
        "5,5",
        "-q",
        "-v",
    )
    assert code == 0
    assert "belady" in output
    assert "degree" in output
    assert "seconds" in output


def test_static_caches_are_measured_like_the_others(root: Path) -> None:
    """All 2,000 rows cached beforehand: no miss, but 2,000 reads."""
    chosen = ("--policies", "degree", "--sizes", "2000", "--fanout", "5,5", "-q")
    assert "0.0000" not in trace(root, *chosen)[1]
    assert "0.0000" in trace(root, *chosen, "--no-fills")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policies", "magic"), "no policy 'magic'"),
        (("--sizes", "x%"), "--sizes"),
        (("--fanout", "a"), "--fanout"),
    ],
)
def test_mistakes_are_reported(
    root: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, output = trace(root, *arguments)
    assert code != 0
    assert message in output
