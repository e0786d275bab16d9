"""YAML 1.2 and JSON: each document has one meaning, or is refused with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.parsing import ParseError, parse_json, parse_yaml

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abyno01:<=~", max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)
BOMB = "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 9)}]\n" for i in range(12)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0100", 100),
        ("-08", -8),
        ("0o17", 15),
        ("0x1F", 31),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1:30", "1:30"),
        ("190:20:30", "190:20:30"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("2020-01-01", "2020-01-01"),
        ("yes", "yes"),
        ("Off", "Off"),
        ("n", "n"),
        ("TRUE", True),
        ("~", None),
        ("", None),
        ("=", "="),
        ("'1'", "1"),
        ("!!str 1", "1"),
    ],
)
def test_a_scalar_is_that_of_the_core_schema_of_yaml_1_2(
    text: str, value: object
) -> None:
    found = parse_yaml(f"a: {text}\n")["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is in line 1 already"),
        ("x: {b: 1,\n c: 2,\n b: 1}\n", 3, "'b' is in line 1 already"),
        ("x:\n- b: 1\n  'b': 1\n", 3, "'b' is in line 2 already"),
        ("a: 1\n980: 2\n", 2, "in quotes"),
        ("true: 1\n", 1, "in quotes"),
        ("[a]: 1\n", 1, "in quotes"),
        ("a: &x {p: 1}\nb:\n  <<: *x\n  <<: *x\n", 4, "'<<' is in line 3 already"),
        ("a: &x {p: 1}\nb:\n  <<: *x\n  p: 2\n  p: 3\n", 5, "'p' is in line 4 already"),
        ("a: 1\nb: {<<: 1}\n", 2, "merge key"),
        ("a: 1\n---\nb: 2\n", 2, "single document"),
        ("%YAML 1.1\n---\na: 0100\n", 1, "YAML 1.1"),
        ("a: 1\nb: .nan\n", 2, "finite"),
        ("a: 1\nb: -.inf\n", 2, "finite"),
        ("a: 1e999\n", 1, "finite"),
        (f"a: {'9' * 5000}\n", 1, "cannot be read as int"),
        ("a: !!int 1:30\n", 1, "cannot be read as int"),
        ("a: !!binary aGk=\n", 1, "tag"),
        ("a: !!python/object/apply:os.getcwd []\n", 1, "tag"),
        ("a: !mine 1\n", 1, "tag"),
        ("a: 1\nb:\n\tc: 1\n", 3, "tab"),
        ("a: [1,\n", 2, "expected"),
        ("a: *b\n", 1, "alias"),
        ("a: &a [*a]\n", 1, "nested"),
        ("a: 1\nb: \x00\n", 2, "character"),
    ],
)
def test_an_ambiguous_or_broken_document_is_refused_with_its_line(
    text: str, line: int, part: str
) -> None:
    with pytest.raises(ParseError) as refused:
        parse_yaml(text)
    assert str(refused.value).startswith(f"line {line}: ")
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_text_of_another_encoding_is_refused_with_its_line() -> None:
    with pytest.raises(ParseError, match="line 2: it is not UTF-8"):
        parse_yaml("a: 1\nb: é\n".encode("latin-1"))
    assert parse_yaml(b"\xef\xbb\xbfa: \xc3\xa9\n") == {"a": "é"}


def test_a_merge_key_adds_the_keys_that_its_mapping_lacks() -> None:
    text = (
        "a: &a {p: 1, q: 1}\nb: &b {q: 2, r: 2}\nc: {r: 3, <<: [*a, *b]}\nd: <<\n'<<': "
        "x\n"
    )
    assert parse_yaml(text)["c"] == {"p": 1, "q": 1, "r": 3}
    assert parse_yaml(text)["d"] == "<<"


def test_aliases_share_a_value_and_those_that_grow_without_bound_are_refused() -> None:
    assert parse_yaml("a: &x [1]\nb: *x\n") == {"a": [1], "b": [1]}
    with pytest.raises(ParseError, match="its aliases written out"):
        parse_yaml(BOMB)


@pytest.mark.parametrize("parse", [parse_yaml, parse_json])
def test_endless_nesting_is_refused(parse: Any) -> None:
    with pytest.raises(ParseError, match="nested"):
        parse("[" * 5_000)


@given(PLAIN)
def test_json_is_read_alike_as_json_and_as_yaml(value: Any) -> None:
    text = json.dumps(value, indent=1)
    assert parse_json(text) == value
    assert parse_yaml(text) == value


@given(st.text() | st.binary())
def test_any_input_is_read_or_refused_in_one_line(content: str | bytes) -> None:
    for parse in (parse_yaml, parse_json):
        try:
            parse(content)
        except ParseError as error:
            assert str(error)
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' is in one object twice"),
        ('{"a": NaN}', "NaN is not a finite"),
        ('{"a": -Infinity}', "-Infinity is not a finite"),
        ('{"a": 1e999}', "1e999 is not a finite"),
        ('{"a": 1,\n"b": }', "line 2"),
        (b'{"a": "\xe9"}', "not UTF-8"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
    ],
)
def test_ambiguous_json_is_refused(text: str | bytes, part: str) -> None:
    with pytest.raises(ParseError, match=part):
        parse_json(text)
