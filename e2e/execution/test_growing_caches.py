"""Caches that grow in the memory they are in, on WebGPU: against onnxruntime, over doublings and branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from e2e.harness.python import BrowserPython
from tests.cache_models import CACHED, Cached
from tests.sampling import matrix

pytestmark = pytest.mark.unguarded

RUN = """
import os
os.environ["PYRUNTIME_VERIFY"] = "1"
import gc
import pyruntime as ort
options = ort.SessionOptions()
options.add_session_config_entry("pyruntime.disable", "software" if gpu else "")
session = await ort.InferenceSession.create(model, options)
names = [o.name for o in session.get_outputs()]
states, results = [{n: ort.OrtValue.ortvalue_from_numpy(v) for n, v in empty.items()}], []
kept = {}
for state, feeds in steps:
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    for name, value in states[state].items():
        binding.bind_ortvalue_input(name, value)
    for name in names:
        binding.bind_output(name, "webgpu" if name in caches else "cpu")
    await session.run_with_iobinding_async(binding)
    made = dict(zip(names, binding.get_outputs()))
    states.append({caches[n]: v for n, v in made.items() if n in caches})
    results.append({n: v.numpy() for n, v in made.items() if n not in caches})
    plan = session._program.roots[-1].executable.plan
    kept = max(len(kept), len(plan.kept))
    kept = range(kept)
ends = []
for state in states[1:]:
    ends.append({n: (await v.numpy_async() if hasattr(v, "numpy_async") else v.numpy()) for n, v in state.items()})
del binding, made, states
session.release()
[results, ends, len(kept)]
"""


def run_on_host(cached: Cached, steps: list[Any], empty: Any, reference: Any = None) -> tuple[list[Any], list[Any]]:
    """What `reference`, by default onnxruntime's CPU, gives for the steps: other outputs, and the caches after each."""
    reference = reference or onnxruntime.InferenceSession(cached.model)
    names = [o.name for o in reference.get_outputs()]
    states, results = [empty], []
    for state, feeds in steps:
        made = dict(zip(names, reference.run(None, {**feeds, **states[state]}), strict=True))
        states.append({cached.caches[n]: v for n, v in made.items() if n in cached.caches})
        results.append({n: v for n, v in made.items() if n not in cached.caches})
    return results, states[1:]


def steps_of(cached: Cached, batch: int, gpu: bool = False) -> list[tuple[int, Any]]:
    """A prompt, tokens, a chunk, over the first doubling; then on from older states, two of them twice.

    With GPU kernels all chunks are short: SwiftShader was seen to hang in the flash kernel over ranges of keys.
    """
    plan = [(0, 7), (1, 1), (2, 1), (3, 1), (4, 250), (5, 1), (6, 3)]
    plan += [(4, 1), (4, 2), (8, 1), (5, 1), (2, 3), (7, 1), (12, 1)]
    if batch > 1 and not cached.chunks:
        plan = [(0, 253), *((i, 1) for i in (1, 2, 3, 4, 5, 3, 7, 2, 1))]
    if gpu:
        plan = [(0, 7), *((i, 1) for i in (1, 2, 3, 4, 5, 3, 7, 2, 1)), *((i, 3) for i in (4, 11) if cached.chunks)]
    lengths, made = [0], []
    for state, new in plan:
        made.append((state, cached.feeds(batch, new, lengths[state])))
        lengths.append(lengths[state] + new)
    return made


@pytest.mark.parametrize(("name", "batch", "kernels"), matrix(list(CACHED), [1, 2], ["software", "gpu"]))
def test_caches__grown_and_branched__are_what_onnxruntime_has(
    name: str, batch: int, kernels: str, python_in_browser: BrowserPython
) -> None:
    cached, gpu = CACHED[name], kernels == "gpu"
    empty, steps = cached.empty(batch), steps_of(cached, batch, gpu)
    wanted, wanted_ends = run_on_host(cached, steps, empty)
    results, ends, kept = python_in_browser(
        RUN, model=cached.model, caches=cached.caches, empty=empty, steps=steps, gpu=gpu
    )
    for number, pairs in enumerate(zip([*results, *ends], [*wanted, *wanted_ends], strict=True)):
        for output, value in pairs[1].items():
            found = np.asarray(pairs[0][output])
            assert found.shape == value.shape and found.dtype == value.dtype, (number, output)
            np.testing.assert_allclose(found, value, cached.atol, cached.atol, err_msg=f"{number} {output}")
    assert kept == cached.in_place
