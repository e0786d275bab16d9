"""Arguments of PyG's `NeighborLoader` and torch's `DataLoader`: translated, or answered
with what to use instead."""

from __future__ import annotations

import contextlib
import difflib
import operator
from collections.abc import Collection, Mapping
from typing import Any

from workloads.errors import InputError, require

_THREADS = "leave it out: threads load, not processes; num_workers says how many"
_DRAWS = (
    "leave it out: every neighbour is drawn alike; edge_weight=True hands weights out"
)
_TIME = "leave it out: there is no sampling by time"
_AFTER = "call it on each mini-batch in the loop"
#: Argument -> its default in PyG or torch, which is accepted, and what to use instead.
INSTEAD: dict[str, tuple[Any, str]] = {
    "batch_sampler": (None, "use batch_size, shuffle, drop_last and max_batches"),
    "collate_fn": (None, _AFTER),
    "directed": (True, "leave it out: edges lead to the node that drew them"),
    "disjoint": (
        False,
        "leave it out: seed nodes of a mini-batch share nodes; use sampler='shadow' "
        "for subgraphs",
    ),
    "filter_per_worker": (None, _THREADS),
    "generator": (None, "use seed: it keys shuffling and every draw"),
    "in_order": (True, "use keep_order"),
    "input_time": (None, _TIME),
    "is_sorted": (False, "leave it out: a dataset's neighbour lists are sorted"),
    "multiprocessing_context": (None, _THREADS),
    "neighbor_sampler": (
        None,
        "use sampler, the name of one (see docs/architecture.md for one of your own)",
    ),
    "persistent_workers": (False, _THREADS),
    "pin_memory": (False, "use device='cuda': mini-batches then arrive on the device"),
    "pin_memory_device": (
        "",
        "use device='cuda': mini-batches then arrive on the device",
    ),
    "prefetch_factor": (
        None,
        "leave it out: systems prepare mini-batches ahead as memory allows "
        "(options={...})",
    ),
    "subgraph_type": (
        "directional",
        "leave it out; use edges='layers' for one graph a layer",
    ),
    "temporal_strategy": ("uniform", _TIME),
    "time_attr": (None, _TIME),
    "timeout": (0, _THREADS),
    "transform": (None, _AFTER),
    "transform_sampler_output": (None, _AFTER),
    "weight_attr": (None, _DRAWS),
    "worker_init_fn": (None, _THREADS),
}


def check_whole(least: int = 0, **numbers: object) -> None:
    """Check numbers by the name of their argument; raise InputError for one that is no
    whole number from `least` on."""
    for name, value in numbers.items():
        # Whole numbers of numpy and torch are such, true and false are not.
        whole = hasattr(type(value), "__index__") and not isinstance(value, bool)
        with contextlib.suppress(TypeError):
            if whole and operator.index(value) >= least:  # type: ignore[arg-type]
                continue
        raise InputError(
            f"{name} is {value!r}", f"give a whole number, {least} or more"
        )


def check_words(words: Mapping[str, Any], known: Collection[str]) -> None:
    """Check further arguments: those of `INSTEAD` with PyG's or torch's default pass.

    Args:
        words: argument -> value.
        known: the loader's own arguments.

    Raises:
        InputError: an argument asks for something, or is unknown; says what to use
            instead.
    """
    for word, value in words.items():
        if word not in INSTEAD:
            near = difflib.get_close_matches(word, [*known, *INSTEAD], n=1)
            fix = (
                f"did you mean {near[0]!r}?"
                if near
                else "docs/loader.md lists its arguments"
            )
            raise InputError(f"the loader has no argument {word!r}", fix)
        default, instead = INSTEAD[word]
        if value is not default and not (
            type(value) is type(default) and value == default
        ):
            raise InputError(f"the loader takes no {word}", instead)


def fan_out(fanout: Any, num_neighbors: Any) -> tuple[int, ...]:
    """Return neighbours per hop of whichever name is given; 10, 10, 10 if none is.

    Raises:
        InputError: both names are given, or not one whole number for each hop.
    """
    require(
        fanout is None or num_neighbors is None,
        "fanout and num_neighbors are both given",
        "give one of them",
    )
    asked = num_neighbors if fanout is None else fanout
    typed = (
        f"the fan-out is {asked!r}, by type of edges, and typed graphs are not "
        "supported yet"
    )
    require(
        not isinstance(asked, Mapping),
        typed,
        "give one whole number for each hop, such as [10, 10, 10]",
    )
    if asked is None:
        return (10, 10, 10)
    try:
        return tuple(operator.index(neighbours) for neighbours in asked)
    except TypeError:
        fix = "give one whole number for each hop, such as [10, 10, 10]; -1 takes all"
        raise InputError(f"the fan-out is {asked!r}", fix) from None


def seed_nodes(split: str, nodes: Any, input_nodes: Any) -> tuple[str, Any]:
    """Return the split and the nodes that take its place, or None; `input_nodes` gives
    either.

    Raises:
        InputError: `input_nodes` is given beside another, or names a type of nodes.
    """
    if input_nodes is None:
        return split, nodes
    alone = split == "train" and nodes is None
    require(alone, "input_nodes is given beside split or nodes", "give one of them")
    if isinstance(input_nodes, str):
        return input_nodes, None
    typed = isinstance(input_nodes, tuple) and any(
        isinstance(part, str) for part in input_nodes
    )
    fault = "input_nodes names a type of nodes, and typed graphs are not supported yet"
    require(not typed, fault, "give ids, a mask or a split's name")
    return split, input_nodes
