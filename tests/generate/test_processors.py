"""Logits processors of the user's own that are operators: they run where the model runs."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import pyruntime as ort
from pyruntime.errors import InvalidArgument
from pyruntime.generate.beams import beam_search
from pyruntime.generate.decoding import Decoding
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions
from tests.generate.test_generator import model, written

ONLY_EVEN = """
class OnlyEven(ort.Op):
    wgsl = '''
struct Params { size: u32, words: u32 }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= params.size) { return; }
    store_y(id.x, select(load_x(id.x), -1e30, (id.x % params.words) % 2u == 1u));
}
'''

    def infer(self, x):
        return x

    def params(self, x):
        return {"words": x.shape[1]}

    def evaluate(self, x):
        return (np.where(np.arange(x.shape[1]) % 2, np.float32(-1e30), x),)
"""

RARER = """
class Rarer(ort.Op):
    by: float = 1.0
    wgsl = "x - by * f32(max(counts, 0))"

    def infer(self, x, counts):
        return x

    def evaluate(self, x, counts):
        return (x - np.float32(self.by) * np.maximum(counts, 0).astype(np.float32),)
"""
"""x less `by` for each time that a token was generated. Both are text, so that the browser has them, too."""


def operator(name: str, source: str) -> Any:
    """The class of a text, as a custom operator."""
    scope: dict[str, Any] = {"ort": ort, "np": np}
    exec(source, scope)
    return ort.custom_op("tests.generate", name)(scope[name])


OnlyEven, Rarer = operator("OnlyEven", ONLY_EVEN), operator("Rarer", RARER)


def test_operator__of_logits__decides_and_tokens_stay_ahead() -> None:
    made = written(TextGenerator(model()), [1, 2], max_new_tokens=12, processors=(OnlyEven(),))[0]
    assert len(made) == 12
    assert not Decoding(model(), GenerationOptions(processors=(OnlyEven(),))).chooser.needs_tokens
    assert all(t % 2 == 0 for t in made)


@pytest.mark.parametrize("drawn", [{}, {"do_sample": True, "seed": 4, "temperature": 0.8}, {"lookup": 3}])
def test_operator__of_logits_and_counts__is_the_frequency_penalty(drawn: dict[str, Any]) -> None:
    options: dict[str, Any] = {"max_new_tokens": 40, **drawn}
    prompts = [[1, 2, 3], [5, 5, 5]]
    penalty = written(TextGenerator(model()), prompts, frequency_penalty=0.7, **options)
    assert written(TextGenerator(model()), prompts, processors=(Rarer(by=0.7),), **options) == penalty
    assert written(TextGenerator(model()), prompts, processors=(Rarer(by=0.0),), **options) != penalty


def test_operators_and_functions__together__functions_first() -> None:
    seen: list[float] = []

    def function(ids: Any, logits: Any) -> Any:
        seen.append(float(logits.max()))
        return logits

    both = written(TextGenerator(model()), [1, 2], max_new_tokens=6, processors=(OnlyEven(), function))
    assert both == written(TextGenerator(model()), [1, 2], max_new_tokens=6, processors=(OnlyEven(),))
    assert len(seen) == 6


def test_wrong_processors__are_refused() -> None:
    with pytest.raises(InvalidArgument, match="operators made with @custom_op"):
        GenerationOptions(processors=(3,))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="beam search runs processors on the host"):
        asyncio.run(beam_search(model(), [1], 2, GenerationOptions(processors=(OnlyEven(),), max_new_tokens=2)))
