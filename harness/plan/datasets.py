"""Datasets made on demand by an experiment: recipes in YAML, the same generator as
`outcore data make`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from harness.plan.experiment import Experiment
from harness.progress import stages
from harness.settings import Strict, strict
from workloads.errors import InputError
from workloads.units import (
    format_bytes,
    parse_bytes,
    parse_count,
    parse_memory_bytes,
    row_bytes,
)


class Recipe(Strict):
    """One entry of `datasets:`; keys and defaults as in `outcore data make`."""

    kind: Literal["kronecker", "fractal", "rmat"]
    nodes: str | int = 0
    edges: str | int = 0
    dim: int = Field(default=128, ge=1)
    dtype: Literal["float32", "float16"] = "float32"
    classes: int = Field(default=0, ge=0)
    train_fraction: float = Field(default=0.01, gt=0, le=1)
    valid_fraction: float = Field(default=0.01, ge=0, le=1)
    test_fraction: float = Field(default=0.01, ge=0, le=1)
    base: str = ""
    expand: int = Field(default=0, ge=0)
    labels: Literal["homophilous", "random"] = "homophilous"
    features: Literal["learnable", "random"] = "learnable"
    seed: int = Field(default=0, ge=0)
    index_dtype: Literal["auto", "int32", "int64"] = "auto"
    max_memory: str = "1GiB"

    def num_nodes(self) -> int:
        """Return the requested number of nodes; 0 where a base graph decides it."""
        return parse_count(self.nodes, "nodes")

    def expected_bytes(self) -> int:
        """Estimate the bytes on disk: features, neighbour lists, index pointers,
        labels."""
        return (
            self.feature_bytes()
            + 16 * self.num_nodes()
            + 4 * parse_count(self.edges, "edges")
        )

    def feature_bytes(self) -> int:
        """Return the bytes of the feature table; 0 where a base graph decides the
        nodes."""
        return self.num_nodes() * row_bytes(self.dim, self.dtype)


def recipes_of(experiments: Sequence[Experiment]) -> dict[str, Recipe]:
    """Return all experiments' recipes by name; raise InputError if one is invalid, or
    two that differ share a name."""
    found: dict[str, Recipe] = {}
    for experiment in experiments:
        for name, content in experiment.datasets.items():
            recipe = strict(Recipe, content, f"datasets.{name}")
            parse_count(recipe.nodes, f"datasets.{name}.nodes")
            parse_count(recipe.edges, f"datasets.{name}.edges")
            parse_memory_bytes(recipe.max_memory, f"datasets.{name}.max_memory")
            if found.setdefault(name, recipe) != recipe:
                raise InputError(
                    f"datasets.{name} has two different recipes",
                    "give one of them another name",
                )
    return found


def ensure(
    name: str, recipe: Recipe, data_root: Path, progress: Callable[[str], None]
) -> None:
    """Make a dataset unless it exists already.

    Args:
        name, recipe, data_root: name, recipe and parent folder of the dataset.
        progress: called with a text for each step.

    Raises:
        InputError: a dataset of that name was made by another recipe.
        DatasetError: the dataset cannot be written.
    """
    from workloads.dataset import Dataset
    from workloads.making.make import MakeSpec, make_dataset

    same = MakeSpec.__dataclass_fields__.keys() & Recipe.model_fields.keys() - {
        "nodes",
        "edges",
    }
    spec = MakeSpec(
        **recipe.model_dump(include=same),
        nodes=recipe.num_nodes(),
        edges=parse_count(recipe.edges, "edges"),
        fractions=(recipe.train_fraction, recipe.valid_fraction, recipe.test_fraction),
    )
    spec.check()
    target = data_root / name
    if (target / "dataset.json").is_file():
        made = Dataset.open(target).manifest.settings
        if made != json.loads(json.dumps(spec.recipe(data_root))):
            message = f"dataset {name} under {data_root} was made by another recipe"
            raise InputError(
                message,
                f"remove it with `outcore data rm {name}`, or give the experiment's "
                "another name",
            )
        return
    progress(f"making it, about {format_bytes(recipe.expected_bytes())}")
    data_root.mkdir(parents=True, exist_ok=True)
    memory = parse_bytes(recipe.max_memory)
    make_dataset(
        target, spec, data_root=data_root, max_memory=memory, progress=stages(progress)
    )
