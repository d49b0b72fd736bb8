"""NonZero of ConstantOfShape: its parts give NumPy's coordinates, and plans leave its sizes open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.compiler.filled import coordinates
from pyruntime.ir import Node
from pyruntime.ops.base import LATEST
from pyruntime.ops.registry import op_class
from tests.models import text_model
from tools.zoo.check import planned


@pytest.mark.parametrize("shape", [(5,), (0,), (1,), (2, 3), (3, 0), (2, 3, 4), (1, 4, 1, 2)])
def test_coordinates__of_a_shape__are_those_of_nonzero(shape: tuple[int, ...]) -> None:
    node = Node(op_class("NonZero", "", LATEST)(), ("x",), ("y",), "n")
    nodes, constants = coordinates(node, "shape", len(shape))
    values: dict[str, Any] = {name: c.numpy() for name, c in constants.items()} | {"shape": np.array(shape, np.int64)}
    for each in nodes:
        op: Any = each.op
        (values[each.outputs[0]],) = op.evaluate(*(values[n] for n in each.inputs))
    np.testing.assert_array_equal(values["y"], np.stack(np.nonzero(np.ones(shape))))
    assert values["y"].dtype == np.int64


MODEL = """g (float[n, k] x) => (int64[a, b] y) {{
 s = Shape<start=0, end={rank}>(x)
 f = ConstantOfShape<value = int64[1] {{{value}}}>(s)
 i = NonZero(f)
 y = Transpose<perm=[1, 0]>(i)
}}"""


@pytest.mark.parametrize("rank", [1, 2])
def test_plan__of_a_range_written_as_nonzero__serves_every_size(rank: int) -> None:
    model = text_model(MODEL.format(rank=rank, value=1), 18).SerializeToString()
    told = planned(model, [{"x": np.zeros(s, np.float32)} for s in ((2, 3), (4, 5), (7, 3))])
    assert told["open"] and not told["closed"]


def test_plan__of_nonzero_of_zeros__is_made_for_each_size() -> None:
    model = text_model(MODEL.format(rank=2, value=0), 18).SerializeToString()
    told = planned(model, [{"x": np.zeros(s, np.float32)} for s in ((2, 3), (4, 5))])
    assert not told["open"] and told["closed"]
