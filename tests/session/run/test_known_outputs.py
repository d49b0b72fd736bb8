"""Outputs that follow from the sizes of inputs alone, in plans that serve every size (null device)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from pyruntime.device.null import NullDevice
from pyruntime.session import InferenceSession
from tests.models import compare, text_model
from tests.oracle import OPTIONS
from tests.session.doubles import run_on

MODEL = """
agraph (float[a,b] x) => (relu, known)
  <int64[1] first = {{0}}, int64[2] three = {{3, 3}}>
{{
  relu = Relu (x)
  shape = Shape (x)
  {nodes}
}}"""

NODES = {
    "shape": "known = Identity (shape)",
    "size": "known = Size (x)",
    "product": "known = Mul (shape, three)",
    "remainder": "known = Mod (shape, three)",
    "number and size": "known = Concat <axis = 0> (first, shape)",
    "number alone": "known = Min (shape, three)",
    "rest": "head, known = Split <num_outputs = 2> (shape)",
    "sequence": "known = SequenceConstruct (shape, first)",
    "optional": "known = Optional (shape)",
}


@pytest.mark.parametrize("name", NODES)
def test_known_outputs__of_a_plan_for_every_size__are_numbers_of_the_run(name: str) -> None:
    model = text_model(MODEL.format(nodes=NODES[name])).SerializeToString()
    theirs = onnxruntime.InferenceSession(model, OPTIONS, providers=["CPUExecutionProvider"])

    async def main() -> None:
        session = await InferenceSession.create(model)
        for shape in ((2, 3), (4, 3), (5, 7), (9, 8), (4, 3)):
            x: Any = np.ones(shape, np.float32)
            (known,) = await session.run_async(["known"], {"x": x})
            _, same = await session.run_async(None, {"x": x})
            (expected,) = theirs.run(["known"], {"x": x})
            compare(known, expected, 0, 0)
            compare(same, expected, 0, 0)
        assert session._program is not None and any(stage.sizes for stage in session._program.roots)
        session.release()

    run_on(NullDevice(), main)
