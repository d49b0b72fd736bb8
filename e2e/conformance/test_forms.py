"""Operators whose own input is the residual added after them, on WebGPU against onnxruntime's CPU.

SwiftShader runs two sets of kernels: its own, and with the switch `software` off those of GPUs. All forms are tested at
one size with both, and some in turn at the others with one of them, or with PYRUNTIME_SOAK=1 all of them with both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
import onnxruntime
import pytest

from e2e.conformance.cases import Case, wire
from e2e.conformance.suites import Suite, run_in_browser
from e2e.harness.python import BrowserPython
from tests.forms import OPS, SIZES, Form, Shape, forms
from tests.oracle import OPTIONS
from tests.sampling import ALL

pytestmark = pytest.mark.unguarded

KERNELS = {"software": "", "gpu": "software,packed_dot"}
"""What is switched off for kernels of each sort; e2e/ops/products/test_packed_dot.py compares rows of 8 bits."""
WHOLE = SIZES[0]


def exact(model: bytes) -> bytes:
    """The model without permission to round rows to 8 bits, which onnxruntime's CPU does."""
    loaded = onnx.load_from_string(model)
    for attribute in (a for node in loaded.graph.node for a in node.attribute if a.name == "accuracy_level"):
        attribute.i = 0
    return bytes(loaded.SerializeToString())


def case(form: Form) -> Case:
    """The form with what onnxruntime makes of it."""
    model, x = form.model(), form.feed()
    session = onnxruntime.InferenceSession(exact(model), OPTIONS, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x})
    return Case(form.name, model, [({"x": wire(x)}, [wire(y)])], 1e-3, form.atol)


def some(size: Shape, turn: int) -> Iterator[Form]:
    """Of every twelfth kind one operator, beginning with `turn`."""
    made = list(forms(size))
    for number, first in enumerate(range(0, len(made), len(OPS))):
        if (number + turn) % 12 == 0:
            yield made[first + (number // 12 + turn) % len(OPS)]


def check(python: BrowserPython, given: Iterable[Form], kernels: str) -> None:
    suite = Suite("forms", "residuals that are an operator's own input", "browser", lambda: map(case, given))
    results = run_in_browser(suite, python, entries={"pyruntime.disable": KERNELS[kernels]})
    wrong = {name: text for name, text in results.wrong.items() if text}
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())
    assert results.wrong


@pytest.mark.parametrize("kernels", KERNELS)
def test_forms__of_every_kind__equal_onnxruntime(python_in_browser: BrowserPython, kernels: str) -> None:
    check(python_in_browser, forms(WHOLE), kernels)


OTHERS = [
    (size, kernels)
    for number, size in enumerate(SIZES[1:])
    for turn, kernels in enumerate(KERNELS)
    if ALL or (number + turn) % len(KERNELS) == 0
]


@pytest.mark.parametrize(("size", "kernels"), OTHERS, ids=lambda v: v if isinstance(v, str) else "x".join(map(str, v)))
def test_forms__at_other_sizes__equal_onnxruntime(python_in_browser: BrowserPython, size: Shape, kernels: str) -> None:
    turn = SIZES.index(size) + list(KERNELS).index(kernels)
    check(python_in_browser, forms(size) if ALL else some(size, turn), kernels)
