"""Random models, node by node: what the families of operators are written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import onnx
from hypothesis import assume
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tests.fuzz import arrays

__all__ = ["Build", "Family", "Sample", "samples"]

T = TypeVar("T")
Family = Callable[["Build"], None]


@dataclass(frozen=True)
class Sample:
    """A model, what it is fed, and how close results have to be."""

    model: onnx.ModelProto
    feeds: dict[str, Any]
    rtol: float
    atol: float
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"\n{onnx.printer.to_text(self.model.graph)}\n" + "\n".join(self.notes)


@dataclass
class Build:
    """Draws what a model is made of.

    Attributes:
        opset: of ai.onnx.
        rtol, atol: what results may differ by; a family may widen them.
    """

    draw: Callable[[st.SearchStrategy[Any]], Any]
    opset: int = 21
    rtol: float = 1e-3
    atol: float = 1e-4
    feeds: dict[str, Any] = field(default_factory=dict)
    initializers: dict[str, Any] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    opsets: dict[str, int] = field(default_factory=dict)

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high]; small ones are simpler."""
        value: int = self.draw(st.integers(low, high))
        return value

    def flag(self) -> bool:
        """True or False."""
        value: bool = self.draw(st.booleans())
        return value

    def pick(self, *options: T) -> T:
        """One of the options; the first is the simplest."""
        value: T = self.draw(st.sampled_from(options))
        return value

    def permutation(self, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        value: list[T] = self.draw(st.permutations(list(items)))
        return value

    def some(self, items: Sequence[T], least: int = 0) -> list[T]:
        """Some of the items, in their order."""
        chosen = self.draw(st.sets(st.integers(0, len(items) - 1), min_size=least)) if items else set()
        return [item for i, item in enumerate(items) if i in chosen]

    def size(self, least: int = 0) -> int:
        """A dimension: mostly small, now and then past what a workgroup or tile holds."""
        value: int = self.draw(
            st.one_of(st.integers(max(least, 1), 5), st.sampled_from((max(least, 1), 17, 64, 65, 130)))
        )
        return 0 if least == 0 and self.integer(0, 40) == 40 else value

    def shape(self, low: int = 0, high: int = 4, least: int = 0) -> tuple[int, ...]:
        """A shape of rank `low` to `high` with at most some ten thousand elements."""
        made: list[int] = []
        for _ in range(self.integer(low, high)):
            size = self.size(least)
            made.append(size if int(np.prod([1, *made])) * size <= 20_000 else 1)
        return tuple(made)

    def broadcast_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to `shape`."""
        kept = shape[self.integer(0, len(shape)) :]
        return tuple(1 if self.integer(0, 2) == 2 else n for n in kept)

    def tensor(self, dtype: str, shape: Sequence[int], kind: str = "normal", fixed: bool | None = None) -> str:
        """A new tensor, fed or an initializer; its name."""
        seed = self.integer(0, 999)
        constant = self.integer(0, 3) == 3 if fixed is None else fixed
        value = arrays.make(dtype, tuple(shape), kind, seed)
        return self.given(value, constant, f"make({dtype!r}, {tuple(shape)}, {kind!r}, {seed})")

    def given(self, value: Any, fixed: bool, note: str = "") -> str:
        """A tensor of this value; its name."""
        name = f"x{len(self.feeds) + len(self.initializers)}"
        (self.initializers if fixed else self.feeds)[name] = np.asarray(value)
        self.notes.append(f"{name} = {note or repr(np.asarray(value))}{' (initializer)' if fixed else ''}")
        self.shapes[name] = np.asarray(value).shape
        return name

    def ints(self, values: Sequence[int], dtype: str = "int64") -> str:
        """A vector that a shape, an axis and the like is read from: mostly constant, as in models."""
        return self.given(np.asarray(list(values), dtype), self.integer(0, 3) != 3)

    def scalar(self, value: Any, dtype: str) -> str:
        """A number as a tensor of rank 0, mostly constant."""
        return self.given(np.asarray(value, dtype), self.integer(0, 3) != 3)

    def node(
        self, op_type: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node; its outputs become the model's unless `keep` drops them."""
        names = [f"y{len(self.nodes)}_{i}" for i in range(outputs)]
        present = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(helper.make_node(op_type, list(inputs), names, domain=domain, **present))
        self.outputs += names
        if domain:
            self.opsets[domain] = 1
        return names

    def keep(self, *names: str) -> None:
        """Make these the model's only outputs."""
        self.outputs = list(names)

    def sample(self) -> Sample:
        """The model as it stands."""
        graph = helper.make_graph(
            self.nodes,
            "sample",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
                for n, x in self.feeds.items()
            ],
            [onnx.ValueInfoProto(name=n) for n in self.outputs],
            [numpy_helper.from_array(x, n) for n, x in self.initializers.items()],
        )
        opsets = [helper.make_opsetid(d, v) for d, v in {"": self.opset, **self.opsets}.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return Sample(model, dict(self.feeds), self.rtol, self.atol, (f"opset {self.opset}", *self.notes))


MOST_BYTES = 4 << 20
"""Of a sample's inputs: more only costs time on its way to the browser."""


@st.composite
def samples(draw: st.DrawFn, family: Family) -> Sample:
    """Samples of one family."""
    build = Build(draw)
    family(build)
    tensors = (*build.feeds.values(), *build.initializers.values())
    assume(sum(x.nbytes for x in tensors) <= MOST_BYTES)
    return build.sample()
