"""YAML 1.2 as plain data: a document with two meanings is refused with its line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from workloads.arraytypes import JsonDict
from workloads.parsing.text import ParseError, decoded, line_at

if TYPE_CHECKING:
    from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_MOST_VALUES = 200_000  # an alias counts as its value
_DEEPEST = 50
_DIRECTIVE = re.compile(r"^%YAML[ \t]+(?!1\.2\s*$)(\S+)", re.MULTILINE)
# The core schema of YAML 1.2 (chapter 10.3.2): any other unquoted scalar is
# text.
_CORE = [
    ("null", re.compile(r"(?:~|null|Null|NULL)?")),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE")),
    ("int", re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")),
    ("float", re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")),
    ("float", re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")),
]
_VALUES: dict[str, Callable[[str], Any]] = {
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": lambda text: int(text, 0) if text.startswith(("0o", "0x")) else int(text),
    "float": lambda text: float(text.replace(".inf", "inf").replace(".nan", "nan")),
    "str": str,
}


def parse_yaml(content: str | bytes) -> Any:
    """Parse one YAML 1.2 document (its core schema): dict with str keys, list, str,
    int, finite float, bool or None.

    The merge key `<<` of YAML 1.1 adds the keys of the named mappings that its own
    mapping lacks.

    Raises:
        ParseError: the text is no YAML or not UTF-8, has another version, several
            documents, a key twice, a key that is no text, a tag, a number that is not
            finite, or aliases that make it too large.
    """
    from ruamel.yaml.error import YAMLError

    text = decoded(content)
    if found := _DIRECTIVE.search(text):
        line = line_at(text, found.start())
        fault = f"line {line}: YAML {found[1]} is not supported, write it as YAML 1.2"
        raise ParseError(fault)
    try:
        node = _compose(text)
        return None if node is None else _Construction().value(node, 0)
    except YAMLError as error:
        fault = _reason(error, text)
        raise ParseError(fault) from error
    except RecursionError as error:
        raise ParseError("it is nested too deeply") from error


def _compose(text: str) -> Node | None:
    """Parse the text to a tree of nodes with tags of the core schema;
    aliases share their node."""
    from ruamel.yaml import YAML
    from ruamel.yaml.nodes import ScalarNode
    from ruamel.yaml.resolver import VersionedResolver
    from ruamel.yaml.tag import Tag

    class CoreSchema(VersionedResolver):
        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            if kind is not ScalarNode or not implicit[0]:
                return super().resolve(kind, value, implicit)
            name = next(
                (name for name, pattern in _CORE if pattern.fullmatch(value)), "str"
            )
            return Tag(suffix=f"{_TAG}{'merge' if value == '<<' else name}")

    yaml = YAML(typ="safe", pure=True)
    yaml.Resolver = CoreSchema
    # valid YAML: an alias is that of the anchor before it
    yaml.composer.warn_double_anchors = False
    node: Node | None = yaml.compose(text)
    return node


class _Construction:
    """Plain data of a tree of nodes; counts its values, since aliases of aliases grow
    without bound."""

    def __init__(self) -> None:
        self._count = 0

    def value(self, node: Node, depth: int) -> Any:
        from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

        self._count += 1
        if self._count > _MOST_VALUES:
            _refuse(
                node,
                f"it has more than {_MOST_VALUES:,} values, its aliases written out",
            )
        if depth > _DEEPEST:
            _refuse(node, f"it is nested more than {_DEEPEST} levels deep")
        if isinstance(node, ScalarNode):
            return _scalar(node)
        if isinstance(node, SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.value(item, depth + 1) for item in node.value]
        if isinstance(node, MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, depth)
        _refuse(node, f"the tag {node.tag} is not supported, leave it out")

    def _mapping(self, node: MappingNode, depth: int) -> JsonDict:
        found: JsonDict = {}
        lines: dict[str, int] = {}
        merged: JsonDict = {}
        for key_node, value_node in node.value:
            key = _key(key_node)
            if key in lines:
                _refuse(
                    key_node,
                    f"the key {key!r} is in line {lines[key]} already, keep one of "
                    "them",
                )
            lines[key] = key_node.start_mark.line + 1
            value = self.value(value_node, depth + 1)
            if key_node.tag == _MERGE:
                merged = _merged(key_node, value)
            else:
                found[key] = value
        return {**merged, **found}


def _merged(node: Node, value: Any) -> JsonDict:
    """Return the keys of the mappings that a merge key names; the first that has a key
    gives its value."""
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        _refuse(node, "the merge key `<<` names no mapping")
    return {key: source[key] for source in reversed(sources) for key in source}


def _key(node: Node) -> str:
    if node.tag not in (f"{_TAG}str", _MERGE):
        written = f"the key {node.value}" if isinstance(node.value, str) else "a key"
        _refuse(node, f"{written} is no text, write it in quotes")
    return str(node.value)


def _scalar(node: ScalarNode) -> Any:
    name = "str" if node.tag == _MERGE else str(node.tag).removeprefix(_TAG)
    if name not in _VALUES:
        _refuse(node, f"the tag {node.tag} is not supported, leave it out")
    try:
        value = _VALUES[name](node.value)
    except ValueError:
        _refuse(node, f"{node.value[:40]!r} cannot be read as {name}")
    if isinstance(value, float) and not math.isfinite(value):
        _refuse(node, f"{node.value} is not a finite number")
    return value


def _refuse(node: Node, fault: str) -> NoReturn:
    raise ParseError(f"line {node.start_mark.line + 1}: {fault}")


def _reason(error: Any, text: str) -> str:
    """Return the line and reason of an error of the YAML library, in one sentence."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        if r"'\t'" in error.problem:
            return f"line {mark.line + 1}: a tab stands where YAML allows spaces only"
        reasons = [part for part in (error.context, error.problem) if part]
        return f"line {mark.line + 1}: {' '.join(' '.join(reasons).split())}"
    if (position := getattr(error, "position", None)) is not None:
        return (
            f"line {line_at(text, position)}: it has a character that YAML does not "
            "allow"
        )
    return " ".join(str(error).split())
