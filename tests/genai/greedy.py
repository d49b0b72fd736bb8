"""Greedy decoding with caches fed back, through any session with onnxruntime's Python interface."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.genai.packed import Shape

__all__ = ["greedy"]


def greedy(session: Any, shape: Shape, prompt: list[int], tokens: int) -> tuple[list[int], float]:
    """Ids after the prompt, and by how much the closest choice was won."""
    kind = {"tensor(float)": np.float32, "tensor(float16)": np.float16}[session.get_outputs()[0].type]
    names = [o.name for o in session.get_outputs()]
    caches = {i.name: np.zeros((1, shape.groups, 0, shape.size), kind) for i in session.get_inputs()[2:]}
    ids, made, margin, total = prompt, list[int](), np.inf, 0
    for _ in range(tokens):
        total += len(ids)
        feed = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, total), np.int64)}
        got = dict(zip(names, session.run(None, {**feed, **caches}), strict=True))
        row = got["logits"][0, -1].astype(np.float32)
        second, first = np.sort(row)[-2:]
        margin = min(margin, float(first - second))
        ids = [int(row.argmax())]
        made += ids
        caches = {n.replace("present", "past_key_values"): v for n, v in got.items() if n != "logits"}
    return made, margin
