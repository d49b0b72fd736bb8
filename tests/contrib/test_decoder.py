"""A small decoder generates the same tokens as with onnxruntime's CPU provider, caches fed back."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyruntime
from pyruntime.device.null import NullDevice
from tests.contrib.decoder import Decoder, decoder
from tests.session.doubles import on_device

STEPS = 8


def _steps(session: Any, made: Decoder, prompts: list[list[int]]) -> tuple[list[Any], list[Any]]:
    """Tokens and logits of greedy steps after prompts, which are padded on the right."""
    batch, longest = len(prompts), max(map(len, prompts))
    ids = np.array([p + [0] * (longest - len(p)) for p in prompts], np.int64)
    mask = np.array([[1] * len(p) + [0] * (longest - len(p)) for p in prompts], np.int64)
    feed = {"input_ids": ids, "attention_mask": mask, **made.empty(batch)}
    names = [o.name for o in session.get_outputs()]
    tokens, logits = [], []
    last = [len(p) - 1 for p in prompts]
    for _ in range(STEPS):
        got = dict(zip(names, session.run(None, feed), strict=True))
        row = np.stack([got["logits"][b, at] for b, at in enumerate(last)])
        logits.append(row)
        tokens.append(row.argmax(axis=1))
        # Where prompts differ in length, seqlens_k counts the mask's ones: the next token overwrites the padding.
        mask = np.concatenate((mask, np.ones((batch, 1), np.int64)), axis=1)
        feed = {"input_ids": tokens[-1][:, None], "attention_mask": mask}
        feed |= {n.replace("present", "past"): v for n, v in got.items() if n.startswith("present")}
        last = [0] * batch
    return tokens, logits


@pytest.mark.parametrize("prompts", [[[3, 7, 1, 12, 5]], [[4]], [[1, 2, 3, 4], [9, 8, 7, 6]], [[1, 2, 3, 4], [9, 8]]])
def test_greedy__caches_fed_back__tokens_of_onnxruntime(prompts: list[list[int]]) -> None:
    made = decoder()
    oracle = onnxruntime.InferenceSession(made.model, providers=["CPUExecutionProvider"])
    session = pyruntime.InferenceSession(made.model, providers=["CPUExecutionProvider"])
    tokens, logits = _steps(session, made, prompts)
    expected, scores = _steps(oracle, made, prompts)
    for mine, theirs in zip(logits, scores, strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-3, 1e-3)
    np.testing.assert_array_equal(tokens, expected)


@pytest.mark.parametrize(("queries", "past", "kernel"), [(1, 7, "few_queries"), (1, 600, "merge"), (40, 0, "tiled")])
def test_decoder__on_a_gpu__attention_is_there(queries: int, past: int, kernel: str) -> None:
    made = decoder(positions=1024)
    total = queries + past
    feed: dict[str, Any] = {n: np.zeros((1, made.groups, past, made.size), np.float32) for n in made.empty(1)}
    feed["input_ids"], feed["attention_mask"] = np.ones((1, queries), np.int64), np.ones((1, total), np.int64)
    with on_device(NullDevice()):
        session = pyruntime.InferenceSession(made.model)
        outputs = asyncio.run(session.run_async(None, feed))
    assert [o.shape for o in outputs[1:]] == [(1, made.groups, total, made.size)] * (2 * made.layers)
    nodes = [n for n in session.explain().nodes if "GroupQueryAttention" in str(n)]
    assert len(nodes) == made.layers
    for node in nodes:
        assert node.placement == "gpu"
        assert any(k.startswith(f"attention_{kernel}") for k in node.kernels)
