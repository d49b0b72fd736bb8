"""Training of the tokenizer, and of the network on random windows of the chapters."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional

from tools.writer.network import Quantized, Shape, Writer

END_OF_TEXT = "<|endoftext|>"
HELD_OUT = 12  # every twelfth chapter is held out

# Learning-rate schedule: a short rise, a plateau, and a fall in stages.
RATES = (
    (0, 0.0), (40, 1.0), (696, 1.0), (697, 0.7931), (760, 0.7123), (761, 0.5336), (816, 0.4503),
    (817, 0.325), (905, 0.1783), (906, 0.1138), (960, 0.02),
)  # fmt: skip


@dataclass(frozen=True)
class Course:
    """Length and learning rates of a training run."""

    steps: int = 960
    batch: int = 16
    window: int = 256
    muon: float = 0.01
    adam: float = 2e-3
    dropout: float = 0.1
    decay: float = 0.1
    coarse_from: int = 770


def train_tokenizer(chapters: list[str], vocabulary: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer, like GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(chapters, trainer)
    return tokenizer


def tokens(tokenizer: Tokenizer, chapters: list[str]) -> Tensor:
    """Return the ids of all chapters, with END_OF_TEXT before each."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    return torch.tensor([id for chapter in tokenizer.encode_batch(chapters) for id in (end, *chapter.ids)])


def split(chapters: list[str]) -> tuple[list[str], list[str]]:
    """Return training chapters and held-out chapters."""
    held_out = chapters[HELD_OUT // 2 :: HELD_OUT]
    return [chapter for chapter in chapters if chapter not in held_out], held_out


def held_out_loss(network: Writer, ids: Tensor, course: Course) -> float:
    """Return the mean of -ln p over disjoint windows."""
    network.eval()
    windows = ids[: len(ids) // (course.window + 1) * (course.window + 1)].view(-1, course.window + 1)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        losses = [
            functional.cross_entropy(
                network(part[:, :-1]).flatten(0, 1).float(), part[:, 1:].flatten(), reduction="sum"
            )
            for part in windows.split(16)
        ]
    network.train()
    return float(sum(losses)) / (len(windows) * course.window)


def optimizers(network: Writer, course: Course) -> list[torch.optim.Optimizer]:
    """Muon (Jordan 2024) for the matrices of the layers, AdamW for the table and the norms."""
    matrices = [m.weight for layer in network.layers for m in layer.modules() if isinstance(m, Quantized)]
    chosen = {id(weight) for weight in matrices}
    others = [weight for weight in network.parameters() if id(weight) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=course.muon, weight_decay=course.decay, momentum=0.95),
        torch.optim.AdamW(others, lr=course.adam, weight_decay=0.01, betas=(0.9, 0.95)),
    ]


def rate(step: int) -> float:
    """Return the factor of the learning rates at a step, counted from 1: linear between the points of RATES."""
    points = np.array(RATES)
    return float(np.interp(step, points[:, 0], points[:, 1]))


def train(network: Writer, ids: Tensor, held_out: Tensor, course: Course) -> None:
    """Train for `course.steps`; no choice depends on the held-out chapters."""
    generator = torch.Generator().manual_seed(0)
    both = optimizers(network, course)
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in both]
    began, total = time.perf_counter(), 0.0
    for step in range(course.steps):
        if step == course.coarse_from:
            network.coarsen()
        for optimizer, initial in zip(both, rates, strict=True):
            for group, lr in zip(optimizer.param_groups, initial, strict=True):
                group["lr"] = lr * rate(step + 1)
        starts = torch.randint(len(ids) - course.window - 1, (course.batch,), generator=generator)
        rows = torch.stack([ids[start : start + course.window + 1] for start in starts.tolist()])
        with torch.autocast("cpu", torch.bfloat16):
            logits = network(rows[:, :-1], course.dropout)
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer in both:
            optimizer.step()
            optimizer.zero_grad()
        total += float(loss.detach())
        if (step + 1) % 50 == 0:
            print(f"step {step + 1:5}: loss {total / 50:.3f}, {time.perf_counter() - began:.0f} s", flush=True)
            total = 0.0
        if (step + 1) % 500 == 0:
            print(f"held out: {held_out_loss(network, held_out, course):.3f}", flush=True)


def new_network(shape: Shape) -> Writer:
    torch.manual_seed(0)
    return Writer(shape)
