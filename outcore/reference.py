"""The page `docs/reference.md`: signature, place and docstring of every public name.

`python -m outcore.reference > docs/reference.md` writes it. Sources are parsed, not
imported.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import outcore

_ROOT = Path(__file__).resolve().parent.parent
_HEADER = """# Python reference

`import outcore` has the names on this page; each stands with the file that defines it.
`pip install outcore` is enough for `loader` and for writing a system; `results`,
`check` and the `outcore` command need `pip install 'outcore[harness]'`. Methods of
a part that its interface describes stand there only.
`python -m outcore.reference > docs/reference.md` writes this page."""
#: Sections of the page: title, introduction, names.
SECTIONS = (
    (
        "Train on a system's mini-batches",
        "[In your own loop](loader.md) has examples.",
        "loader MiniBatch LayerEdges",
    ),
    ("Read a dataset through PyG's own loaders", "", "pyg.FeatureStore pyg.GraphStore"),
    ("Read the records of runs", "", "results"),
    (
        "Make a system of parts",
        "A `PathSystem` writes `path()` alone. [The tutorial](tutorial.md) writes "
        "four; [architecture](architecture.md) has the table of parts.",
        "PathSystem Path SamplingOptions RowReadOptions",
    ),
    (
        "Kinds of parts",
        "",
        "Loaded Mapped NeighbourLists host_graph Neighbours Demand StaticDevice "
        "StaticHost Ranked DirectRows PagedRows SingleRows MappedRows HostRows "
        "FirstLayer Tables Ring ZeroCopy",
    ),
    (
        "Interfaces of parts",
        "",
        "Part Site Need Follower Topology Graph Source Sample Rows Cache ChangingCache "
        "Copy Load",
    ),
    (
        "Write a system without parts",
        "[How to add a system](researcher.md#add-a-system) has an example.",
        "System SystemInfo Options auto Plan PlanItem MemoryBudget Runtime StageClock "
        "Batch Counters PartUse Workload Dataset",
    ),
    (
        "Sample, and read rows",
        "",
        "make_seed_plan make_sampler batch_bounds feature_reader feature_reader_bytes "
        "RowReader ReadStats counters_of",
    ),
    ("Check a system", "", "check CheckResult"),
    (
        "Errors",
        "",
        "OutcoreError InputError BudgetError DatasetError DataIOError HostError",
    ),
)
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Warns|Yields):$")
_RULE = re.compile(r"\brule (\d+)")
_FIELDS = {"Field", "auto", "size", "field"}
_WIDTH = 88

Function = ast.FunctionDef
Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Place:
    """A definition and its file."""

    file: Path
    node: Definition


@cache
def _tree(module: str) -> tuple[Path, ast.Module]:
    base = _ROOT.joinpath(*module.split("."))
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    return file, ast.parse(file.read_text(encoding="utf-8"))


def find(module: str, name: str) -> Place:
    """Return the definition of a name, through the modules that import it from others.

    Raises:
        LookupError: no class or function has this name.
    """
    file, tree = _tree(module)
    for node in tree.body:
        if isinstance(node, Definition) and node.name == name:
            return Place(file, node)
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return find(node.module, alias.name)
    raise LookupError(f"{module} defines no class or function {name!r}")


def _place(name: str) -> Place:
    if name.startswith("pyg."):
        return find("outcore.pyg", name.removeprefix("pyg."))
    return find(*outcore._PLACES[name])


def _default(value: ast.expr) -> tuple[str, str]:
    """Return a field's default and its description, as source; empty where there is
    none."""
    called = value.func if isinstance(value, ast.Call) else None
    if not isinstance(value, ast.Call) or not isinstance(called, ast.Name):
        return ast.unparse(value), ""
    if called.id not in _FIELDS:
        return ast.unparse(value), ""
    given = {each.arg: each.value for each in value.keywords if each.arg}
    text = given.get("description")
    described = ast.literal_eval(text) if text is not None else ""
    default = value.args[0] if value.args else given.get("default")
    if default is None and called.id == "auto":
        return "0", described
    return ("" if default is None else ast.unparse(default)), described


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the public fields of a class as source, with their descriptions."""
    for each in node.body:
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
            continue
        made = ast.unparse(each.value) if each.value is not None else ""
        if each.target.id.startswith("_") or "init=False" in made:
            continue
        text = f"{each.target.id}: {ast.unparse(each.annotation)}"
        described = ""
        if each.value is not None:
            default, described = _default(each.value)
            text += f" = {default}" if default else ""
        yield text, described


def _signature(node: Function) -> str:
    """Return a function's name, arguments and result in one line."""
    arguments = re.sub(r"^(self|cls)(, )?", "", ast.unparse(node.args))
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{node.name}({arguments}){result}"


def _folded(signature: str) -> str:
    """Return a long signature with an argument a line."""
    if len(signature) <= _WIDTH:
        return signature
    name, _, rest = signature.partition("(")
    arguments, _, result = rest.rpartition(")")
    one_a_line = re.sub(r", (?![^\[(]*[\])])", ",\n    ", arguments)
    return f"{name}(\n    {one_a_line},\n){result}"


def _methods(node: ast.ClassDef) -> Iterator[Function]:
    """Yield the public methods that no base class on the page has."""
    described = set(_inherited(node))
    for each in node.body:
        if not isinstance(each, Function) or each.name.startswith("_"):
            continue
        if each.name not in described:
            yield each


def _inherited(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names that a class has from its bases on the page."""
    for base in node.bases:
        name = ast.unparse(base)
        if name not in outcore._PLACES:
            continue
        parent = _place(name).node
        assert isinstance(parent, ast.ClassDef)
        yield from (each.name for each in parent.body if isinstance(each, Function))
        yield from _inherited(parent)


def _decorated(node: Function, name: str) -> bool:
    return any(ast.unparse(each).endswith(name) for each in node.decorator_list)


def _prose(text: str) -> str:
    """Return a docstring as Markdown: sections become lists."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        head = _SECTION.match(line)
        entry = re.match(r"^    (\S.*)$", line)
        if head is not None:
            inside = True
            lines += [f"**{head[1]}**", ""]
        elif inside and entry is not None:
            lines.append(f"- {_entry(entry[1])}")
        elif inside and line.startswith("        "):
            lines.append(f"  {line.strip()}")
        else:
            inside = inside and not line.strip()
            lines.append(line)
    return _RULE.sub(r"[\g<0>](methodology.md#rule-\1)", "\n".join(lines).strip())


def _entry(text: str) -> str:
    """Return an entry of a section with its names in backticks."""
    return re.sub(r"^([\w, ]+?):(?= |$)", r"`\1`:", text)


def _entry_of(name: str) -> str:
    """Return the page's entry of a public name."""
    place = _place(name)
    node = place.node
    file = place.file.relative_to(_ROOT).as_posix()
    prose = _prose(ast.get_docstring(node) or "")
    shown = f"outcore.{name}"
    if isinstance(node, Function):
        signature = _signature(node).removeprefix(node.name)
        code = _folded(f"outcore.{name}{signature}")
        return f"### `{shown}`\n\n`{file}`\n\n```python\n{code}\n```\n\n{prose}"
    return "\n\n".join([f"### `{shown}`", f"`{file}`", *_class(node, prose)])


def _class(node: ast.ClassDef, prose: str) -> Iterator[str]:
    fields = list(_fields(node))
    start = next((each for each in node.body if _is_start(each)), None)
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    head = f"class {node.name}({bases})" if bases else f"class {node.name}"
    if isinstance(start, Function):
        made = _signature(start).removesuffix(" -> None")
        made = made.replace("__init__", node.name, 1)
        head += "\n" + textwrap.indent(_folded(made), "    ")
    lines = [head, *(f"    {text}" for text, _ in fields)]
    code = "\n".join(lines)
    yield f"```python\n{code}\n```"
    yield prose
    described = [f"- `{text.split(':')[0]}`: {why}" for text, why in fields if why]
    if described:
        yield "\n".join(described)
    methods = [_method(each) for each in _methods(node)]
    if methods:
        yield "\n".join(methods)


def _is_start(node: ast.stmt) -> bool:
    return isinstance(node, Function) and node.name == "__init__"


def _method(node: Function) -> str:
    """Return a method, with its docstring below."""
    text = _signature(node)
    if _decorated(node, "property"):
        result = ast.unparse(node.returns) if node.returns is not None else ""
        text = f"{node.name}: {result}"
    abstract = " *(to be written)*" if _decorated(node, "abstractmethod") else ""
    prose = _prose(ast.get_docstring(node) or "")
    below = textwrap.indent(prose, "  ")
    return f"- `{text}`{abstract}\n\n{below}\n" if prose else f"- `{text}`{abstract}\n"


def page() -> str:
    """Return the page."""
    parts = [_HEADER]
    for title, text, names in SECTIONS:
        parts.append(f"## {title}")
        if text:
            parts.append(text)
        parts += [_entry_of(name) for name in names.split()]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


if __name__ == "__main__":
    print(page(), end="")
