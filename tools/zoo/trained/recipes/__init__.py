"""Realistic inputs, deterministic for each run: `steps_of(model, run)`.

An input is a table with a kind, a shape (numbers, or letters of the model's sizes) and options of the kind. sound.py,
pictures.py, symbols.py and numbers.py define the kinds. Where inputs depend on one another (edges of a graph and its
nodes), a recipe of structures.py generates all.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tools.zoo.check import Feeds
from tools.zoo.trained.packages import Model
from tools.zoo.trained.recipes import numbers, pictures, sound, structures, symbols
from tools.zoo.trained.recipes.context import Context

__all__ = ["RECIPES", "VALUES", "steps_of", "value"]

Value: TypeAlias = Callable[..., np.ndarray[Any, Any]]

VALUES: Mapping[str, Value] = {**numbers.VALUES, **pictures.VALUES, **sound.VALUES, **symbols.VALUES}
"""Kinds of values by name: functions of a Context and their options."""

RECIPES: Mapping[str, Callable[[Context], Feeds]] = structures.RECIPES


def steps_of(model: Model, run: int) -> list[Feeds]:
    """Return the feeds of each step of a run; inputs in `model.back` are those of the first step."""
    sizes = {letter: values[run] for letter, values in model.sizes.items()}
    steps = []
    for step in range(model.steps):
        context = Context((), sizes, step, zlib.crc32(f"{model.key} {run}".encode()), model.assets)
        made = RECIPES[model.recipe](context) if model.recipe else {}
        made |= {name: value(told, context, name) for name, told in model.inputs.items()}
        steps.append(made)
    return steps


def value(told: Mapping[str, Any], context: Context, name: str) -> np.ndarray[Any, Any]:
    """Generate the value of one input.

    Raises:
        KeyError: a kind or a letter that is not defined.
    """
    options = {k: v for k, v in told.items() if k not in ("kind", "shape", "dtype")}
    shape = tuple(context.sizes[d] if isinstance(d, str) else d for d in told["shape"])
    made = VALUES[told["kind"]](context.of(shape, name), **options)
    if made.shape != shape:
        raise ValueError(f"{name}: {told['kind']} made {list(made.shape)}, the shape is {list(shape)}")
    return made.astype(told.get("dtype", made.dtype))
