"""Models y = act(f(t) op t), t = tanh(x): an operator's own input is the residual that is fused after it.

Every kind of operator that keeps a shape is an f here. A plan that lets y take t's memory is right only where the
kernel of f reads of t nothing but what it then overwrites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.forms.form import ACTS, OPS, SIZES, Form, Kind, Shape
from tests.forms.others import OTHERS
from tests.forms.products import PRODUCTS

__all__ = ["ACTS", "KINDS", "OPS", "SIZES", "Form", "Shape", "forms"]

KINDS: Mapping[str, Kind] = {**PRODUCTS, **OTHERS}


def forms(size: Shape, ops: tuple[str, ...] = OPS) -> Iterator[Form]:
    """Every kind that fits `size`, with each operator; activations alternate."""
    for number, (kind, add) in enumerate(KINDS.items()):
        for turn, op in enumerate(ops):
            act = ACTS[(number + turn) % len(ACTS)]
            form = Form(size, f"{act or 'linear'}({kind} {op} t) of {'x'.join(map(str, size))}")
            f = add(form)
            if f is None:
                break
            form.finish(f, op, act)
            yield form
