"""Random settings of the operators that generate text, for models of `generators`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from pyruntime.ir import Array
from tests.contrib.generators import EOS, PAD, START, VOCAB, WIDTH, encoder_decoder, gpt, model_of, whisper

__all__ = ["BEAM", "GREEDY", "SETTINGS", "drawn", "f32", "i32"]

SETTINGS = ["beams", "beams of an encoder", "beams of Whisper", "beams of Whisper with timestamps", "greedy", "drawn"]

BEAM = [
    "input_ids",
    "max_length",
    "min_length",
    "num_beams",
    "num_return_sequences",
    "length_penalty",
    "repetition_penalty",
    "vocab_mask",
    "prefix_vocab_mask",
    "attention_mask",
    "decoder_input_ids",
    "logits_processor",
    "cross_qk_layer_head",
    "extra_decoding_ids",
    "temperature",
]
GREEDY = [
    "input_ids",
    "max_length",
    "min_length",
    "repetition_penalty",
    "vocab_mask",
    "prefix_vocab_mask",
    "attention_mask",
    "presence_mask",
    "seed",
]
TIMES = 90
"""The vocabulary of the models with timestamps."""


def i32(x: Any) -> Array:
    return np.array(x, np.int32)


def f32(x: Any) -> Array:
    return np.array(x, np.float32)


def drawn(kind: str, seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one of `SETTINGS`, and its feeds."""
    rng = np.random.default_rng([SETTINGS.index(kind), seed])
    batch, lift = int(rng.integers(1, 4)), float(rng.choice([-3, 0, 2, 4]))
    feeds = _lengths(rng)
    attributes: dict[str, Any] = {"eos_token_id": EOS, "pad_token_id": PAD}
    attributes["no_repeat_ngram_size"] = int(rng.choice([0, 0, 2, 3]))
    if "Whisper" in kind:
        return _whisper(rng, batch, lift, kind, feeds, attributes)
    feeds["input_ids"] = _prompts(rng, batch)
    if rng.random() < 0.3:
        feeds["vocab_mask"] = _mask(rng, VOCAB)
    if rng.random() < 0.3:
        feeds["prefix_vocab_mask"] = _mask(rng, batch, VOCAB)
    if rng.random() < 0.3:
        feeds["attention_mask"] = i32(rng.random(feeds["input_ids"].shape) < 0.8)
    if kind == "beams of an encoder":
        started = bool(rng.random() < 0.6)
        hidden, whole = started and bool(rng.random() < 0.5), bool(rng.random() < 0.3)
        encoder, decoder = encoder_decoder(rng, started, hidden, whole, lift=lift)
        attributes |= {"model_type": 1, "decoder_start_token_id": START, "encoder": encoder, "decoder": decoder}
        return _beams("BeamSearch", rng, feeds, attributes)
    attributes["decoder"] = gpt(rng, lift=lift)
    if rng.random() < 0.3:
        attributes["init_decoder"] = gpt(rng, lift=lift)
    if kind == "beams":
        return _beams("BeamSearch", rng, feeds, attributes)
    if kind == "greedy":
        return model_of("GreedySearch", feeds, GREEDY, ["sequences"], **attributes), feeds
    attributes |= {"top_p": float(rng.choice([0.3, 0.9])), "custom": int(rng.integers(2))}
    attributes |= {"min_tokens_to_keep": int(rng.choice([0, 1, 3])), "temperature": float(rng.choice([0.5, 1, 2]))}
    if rng.random() < 0.5:
        feeds["seed"] = i32([rng.choice([0, 1, 5, 12345, 2**31 - 1])])
    return model_of("Sampling", feeds, GREEDY, ["sequences"], **attributes), feeds


def _lengths(rng: np.random.Generator) -> dict[str, Array]:
    return {
        "max_length": i32([rng.integers(8, 20)]),
        "min_length": i32([rng.choice([0, 0, 7])]),
        "repetition_penalty": f32([rng.choice([1, 1, 1.3, 0.8])]),
    }


def _mask(rng: np.random.Generator, *shape: int) -> Array:
    mask = i32(rng.random(shape) < 0.7)
    mask[..., EOS] = 1
    return mask


def _prompts(rng: np.random.Generator, batch: int) -> Array:
    """Tokens, padded in front."""
    ids = i32(rng.integers(4, VOCAB, (batch, int(rng.integers(1, 7)))))
    for row in ids:
        row[: int(rng.integers(len(row)))] = PAD
    return ids


def _beams(
    op_type: str, rng: np.random.Generator, feeds: dict[str, Array], attributes: dict[str, Any]
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    beams = int(rng.integers(1, 6))
    feeds["num_beams"], feeds["num_return_sequences"] = i32([beams]), i32([rng.integers(1, beams + 1)])
    feeds["length_penalty"] = f32([rng.choice([1, 1, 0.5, 2, 0, -0.5])])
    attributes["early_stopping"] = int(rng.integers(2))
    return model_of(op_type, feeds, BEAM, ["sequences", "sequences_scores", "scores"], **attributes), feeds


def _whisper(
    rng: np.random.Generator, batch: int, lift: float, kind: str, feeds: dict[str, Array], attributes: dict[str, Any]
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    feeds["input_ids"] = f32(rng.standard_normal((batch, WIDTH, 5)))
    attributes |= {"model_type": 2, "decoder_start_token_id": START}
    vocab, lifted = VOCAB, {EOS: lift}
    if "timestamps" in kind:
        first, vocab = int(rng.choice([12, 25, 60])), TIMES
        lifted |= {token: float(rng.choice([0, 1, 2])) for token in range(first, vocab)}
        feeds["logits_processor"] = i32([1])
        names = ("beginning_timestamp", "no_timestamps", "start_of_lm", "translate", "transcribe")
        attributes |= {f"{name}_token_id": first - place for place, name in enumerate(names)}
    if rng.random() < 0.5:
        feeds["decoder_input_ids"] = i32(rng.integers(4, vocab, (batch, int(rng.integers(1, 5)))))
    if rng.random() < 0.3:
        feeds["temperature"] = f32([rng.choice([0.5, 2])])
    encoder, decoder = whisper(rng, bool(rng.random() < 0.5), lift=lifted, vocab=vocab)
    op_type = "WhisperBeamSearch" if "timestamps" in kind or "temperature" in feeds else str(rng.choice(BOTH))
    return _beams(op_type, rng, feeds, {**attributes, "encoder": encoder, "decoder": decoder})


BOTH = ("BeamSearch", "WhisperBeamSearch")
"""The operators that run Whisper."""
