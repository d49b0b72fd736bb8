"""Checks of the exported model by onnxruntime: same logits as the network, and samples of text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import torch
from tokenizers import Tokenizer

from tools.writer.network import Shape, Writer

PROMPTS = ("It is a truth universally acknowledged", '"My dear Emma,"', "The next morning")


class Loop:
    """The model with its caches, on the CPU."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        file = folder / "onnx" / "model_q4.onnx"
        self.session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        empty = np.zeros((1, shape.num_key_value_heads, 0, shape.head_dim), np.float32)
        names = [value.name for value in self.session.get_inputs() if value.name.startswith("past")]
        self.caches: dict[str, npt.NDArray[np.float32]] = dict.fromkeys(names, empty)
        self.length = 0

    def step(self, ids: list[int]) -> npt.NDArray[np.float32]:
        """Return logits `[len(ids), vocabulary]` of tokens that follow the previous ones."""
        self.length += len(ids)
        feeds = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, self.length), np.int64), **self.caches}
        logits, *caches = self.session.run(None, feeds)
        self.caches = dict(zip(self.caches, caches, strict=True))
        return np.asarray(logits[0], np.float32)


def differ(network: Writer, folder: Path) -> float:
    """Return the largest difference of logits between network and file; the file computes them in two parts."""
    ids = torch.randint(network.shape.vocab_size, (1, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = network(ids)[0].numpy()
    loop, numbers = Loop(folder, network.shape), ids[0].tolist()
    found = np.concatenate([loop.step(numbers[:25]), loop.step(numbers[25:])])
    return float(np.abs(found - expected).max())


def continuation(folder: Path, shape: Shape, prompt: str, count: int = 60, temperature: float = 0.7) -> str:
    """Sample a continuation of `prompt`."""
    loop, random = Loop(folder, shape), np.random.default_rng(0)
    ids = loop.tokenizer.encode(prompt).ids
    logits = loop.step(ids)[-1]
    for _ in range(count):
        scaled = (logits - logits.max()).astype(np.float64) / temperature
        chances = np.exp(scaled) / np.exp(scaled).sum()
        ids.append(int(random.choice(len(chances), p=chances)))
        logits = loop.step(ids[-1:])[-1]
    return str(loop.tokenizer.decode(ids))
