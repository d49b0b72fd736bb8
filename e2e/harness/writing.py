"""The page's language model: a generator in JavaScript, and the same model under onnxruntime."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import onnxruntime

from e2e.harness.script import Script
from tools.devkit.shell import ROOT

FOLDER = ROOT / "models" / "austen"
PROMPT = "It is a truth universally acknowledged"

LATER = """
const { TextGenerator } = await import('/src/web/pyruntime.js');
globalThis.generator ??= await TextGenerator.create('/models/austen');
const { generator } = globalThis;
const write = async (input, options, from = generator) => {
  const pieces = [];
  for await (const piece of from.generate(input, options)) pieces.push(piece);
  return pieces;
};
const textOf = (pieces) => pieces.map(({ text }) => text).join('');
const idsOf = (pieces) => pieces.map(({ id }) => id);
const counts = async () => {
  const { client } = await import('/src/web/api/client.js');
  return client().call('keptTensors', {});
};
"""


class Writing(Script):
    """A script with a generator of the model, which is loaded once."""

    def __call__(self, body: str, **variables: Any) -> Any:
        return super().__call__(LATER + body, **variables)


@functools.cache
def under_onnxruntime() -> onnxruntime.InferenceSession:
    """Create an onnxruntime session of the model on the CPU."""
    return onnxruntime.InferenceSession(FOLDER / "onnx" / "model_q4.onnx", providers=["CPUExecutionProvider"])


class Loop:
    """Runs the model under onnxruntime, token by token."""

    def __init__(self) -> None:
        self.session = under_onnxruntime()
        config = json.loads((FOLDER / "config.json").read_text())
        empty = np.zeros((1, config["num_key_value_heads"], 0, config["head_dim"]), np.float32)
        self.names = [value.name for value in self.session.get_inputs() if value.name.startswith("past")]
        self.caches = dict.fromkeys(self.names, empty)
        self.length = 0

    def step(self, ids: list[int]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the logits of the token after `ids`."""
        self.length += len(ids)
        mask = np.ones((1, self.length), np.int64)
        logits, *caches = self.session.run(None, {"input_ids": [ids], "attention_mask": mask, **self.caches})
        self.caches = dict(zip(self.names, caches, strict=True))
        return np.asarray(logits[0, -1], np.float32)
