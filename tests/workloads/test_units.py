"""Sizes: a number whose unit is missing is refused with the size that was probably
meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.settings import canonical_memory, parse_memory
from systems.loading.request import memory_bytes
from workloads.errors import InputError
from workloads.units import parse_bytes, parse_memory_bytes


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("0.25", "0.25x (a share of the features) or 0.25GiB?"),
        ("1.5", "1.5x (a share of the features) or 1.5GiB?"),
        ("25%", "0.25x?"),
        ("12.5 %", "0.125x?"),
        ("64", "did you mean 64MiB?"),
        ("4096", "did you mean 4096MiB?"),
        ("1e3", "did you mean 1000MiB?"),
        ("64M", "did you mean 64MiB?"),
        ("4g", "did you mean 4GiB?"),
        ("1.5B", "did you mean 1.5GiB?"),
        ("0", "is nothing"),
        ("0MiB", "is nothing"),
        ("-1", "not a size"),
        ("inf", "not a size"),
        ("nan", "not a size"),
        ("1e999", "more than 2^63"),
        ("99999999999GiB", "more than 2^63"),
        ("1:30", "not a size"),
        ("12,5GiB", "not a size"),
    ],
)
def test_memory_that_lacks_a_unit_is_refused_with_what_was_meant(
    text: str, fix: str
) -> None:
    for read in (
        lambda: parse_memory(text, 1 << 30),
        lambda: memory_bytes(text, 1 << 30),
    ):
        with pytest.raises(InputError) as refused:
            read()
        assert fix in str(refused.value)
        assert "inf" not in refused.value.fix


@pytest.mark.parametrize("text", ["0.25", "64", "0", "25%", "0.25x", "1e999", "-1"])
def test_other_memory_is_held_to_the_same_and_is_never_a_share(text: str) -> None:
    with pytest.raises(InputError, match="device_memory") as refused:
        parse_memory_bytes(text, "device_memory")
    assert "x?" not in refused.value.fix
    assert "share" not in refused.value.fix


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("64 MiB", 64 << 20),
        ("0.25GB", 250_000_000),
        ("1e9", 10**9),
        ("2097152", 2 << 20),
        ("512B", 512),
        ("4KiB", 4096),
    ],
)
def test_memory_with_a_unit_or_of_many_bytes_is_taken(text: str, nbytes: int) -> None:
    assert parse_memory(text, 1).cap_bytes == nbytes == parse_memory_bytes(text)


@given(st.integers(1, 2**60))
def test_a_size_in_bytes_is_exact_and_its_canonical_form_reads_back(
    nbytes: int,
) -> None:
    assert parse_bytes(str(nbytes)) == parse_bytes(nbytes) == nbytes
    assert parse_memory(canonical_memory(f"{nbytes}B"), 1).cap_bytes == nbytes


def test_a_part_of_a_byte_is_refused() -> None:
    with pytest.raises(InputError, match="bytes are whole"):
        parse_bytes("0.5", "--keep")
