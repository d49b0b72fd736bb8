"""Sessions, dimension sizes and inputs for the commands."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from pyruntime.cli.progress import Progress
from pyruntime.errors import InvalidArgument, NoSuchFile
from pyruntime.ir import DeclaredTensor, DType, Graph, TensorType, ValueInfo
from pyruntime.session import InferenceSession, SessionOptions
from pyruntime.session.base import Internals
from pyruntime.session.environment import CPU, WEBGPU, wait_for
from pyruntime.session.precision import FLOAT32_NODES, PRECISION, half_precision
from pyruntime.target import HalfPrecision

__all__ = ["dims_of", "feeds_of", "half_of", "session_of", "type_of"]


def session_of(arguments: argparse.Namespace, progress: Progress | None = None) -> InferenceSession:
    """Create a session on the device that the command names; on NumPy for commands that do not run models."""
    adapter, options = getattr(arguments, "adapter", "cpu"), SessionOptions()
    providers: list[Any] | None = [(WEBGPU, {"adapter": adapter})] if adapter else None
    if adapter == "cpu":
        providers = [CPU]
    else:
        options.add_session_config_entry(PRECISION, arguments.precision)
        options.add_session_config_entry(FLOAT32_NODES, json.dumps(arguments.float32_node))
    told = progress.loading if progress else None
    created = InferenceSession.create(arguments.model, options, providers, progress=told)
    return wait_for(created, "await InferenceSession.create(model)")


def half_of(arguments: argparse.Namespace, graph: Graph) -> HalfPrecision | None:
    """Parse `--precision` and `--float32-node`, for commands that do not run models."""
    return half_precision(graph, arguments.precision, json.dumps(arguments.float32_node))


def dims_of(arguments: argparse.Namespace) -> dict[str, int]:
    """Parse the sizes of symbolic dimensions. Raises InvalidArgument: a malformed argument."""
    pairs = [text.partition("=") for text in arguments.dim]
    wrong = [name for name, _, size in pairs if not size.isdecimal()]
    if wrong:
        raise InvalidArgument(f"--dim: expected NAME=SIZE, got {wrong[0]!r}")
    return {name: int(size) for name, _, size in pairs}


def type_of(value: ValueInfo, dims: dict[str, int]) -> TensorType:
    """Return the type of an input with these sizes, 1 where none is given.

    Raises:
        InvalidArgument: the input has no declared shape.
    """
    kind = value.type
    if not isinstance(kind, DeclaredTensor) or kind.shape is None:
        raise InvalidArgument(f"input '{value.name}' has no declared shape; run it from Python")
    return TensorType(kind.dtype, tuple(d if isinstance(d, int) else dims.get(str(d), 1) for d in kind.shape))


def feeds_of(session: InferenceSession, arguments: argparse.Namespace) -> dict[str, Any]:
    """Load inputs from files; the others are random, with the same values in every run."""
    dims, random = dims_of(arguments), np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    unnamed = iter(v.name for v in Internals(session).model.graph.inputs)
    for text in getattr(arguments, "input", ()):
        name, named, file = text.partition("=")
        if not named:
            name, file = next(unnamed, ""), text
        try:
            feeds[name] = np.load(file, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise NoSuchFile(f"--input {text}: {error}") from None
    for value in Internals(session).model.graph.inputs:
        if value.name not in feeds:
            kind = type_of(value, dims)
            if kind.dtype is DType.STRING:
                raise InvalidArgument(f"input '{value.name}' holds strings; give --input {value.name}=FILE.npy")
            made = random.random(kind.shape) if kind.dtype.is_float else random.integers(0, 2, kind.shape)
            feeds[value.name] = made.astype(kind.dtype.numpy)
    return feeds
