"""Decoders of other forms: position ids, masks that padding precedes, recurrent states, float16 logits, merged ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyruntime
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions
from pyruntime.ir import Array

WORDS, WIDTH = 30, 6
RNG = np.random.default_rng(5)
EMBEDDING = RNG.standard_normal((WORDS, WIDTH)).astype(np.float32)
HEAD = RNG.standard_normal((WIDTH, WORDS)).astype(np.float32)


def summing(state: bool = False, half: bool = False, keep: bool = False) -> bytes:
    """logits[t] = (sum over s <= t of mask[s] · e[id[s]] · cos(position[s]) + e[id[t - 1]] where `state`) · head."""
    nodes: list[onnx.NodeProto] = []

    def add(op: str, *inputs: str, to: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [to], **attributes))
        return to

    constants = {"e": EMBEDDING, "head": HEAD, "two": np.int64(2), "one": np.array([1]), "zero": np.array([0])}
    constants |= {"last": np.array([1 << 40]), "minus": np.array([-1])}
    add("Gather", "e", "input_ids", to="x")
    nodes.append(helper.make_node("Cast", ["position_ids"], ["p"], to=1))
    angle = add("Unsqueeze", add("Cos", "p", to="c"), "minus", to="u")
    keys = add("Unsqueeze", add("Mul", "x", angle, to="turned"), "one", to="keys")
    add("Concat", "past_key_values.0.key", keys, to="present.0.key", axis=2)
    nodes.append(helper.make_node("Cast", ["attention_mask"], ["m"], to=1))
    mask = add("Unsqueeze", add("Unsqueeze", "m", "one", to="m1"), "minus", to="m2")
    sums = add("CumSum", add("Mul", "present.0.key", mask, to="masked"), "two", to="sums")
    add("Shape", "input_ids", to="shape")
    add("Neg", add("Slice", "shape", "one", add("Add", "one", "one", to="after"), to="s"), to="begin")
    y = add(
        "Squeeze",
        add("Slice", sums, "begin", "last", add("Unsqueeze", "two", "zero", to="axis"), to="new"),
        "one",
        to="y",
    )
    if state:
        before = add("Concat", add("Unsqueeze", "past_conv.0", "one", to="p1"), "x", to="shifted", axis=1)
        y = add("Add", y, add("Slice", before, "zero", "minus", "one", to="previous"), to="with_previous")
        add("Squeeze", add("Slice", before, "minus", "last", "one", to="newest"), "one", to="present_conv.0")
    if keep:
        y = add(
            "Slice",
            y,
            add("Neg", add("Unsqueeze", "num_logits_to_keep", "zero", to="k"), to="nk"),
            "last",
            "one",
            to="kept",
        )
    add("MatMul", y, "head", to="wide")
    nodes.append(helper.make_node("Cast", ["wide"], ["logits"], to=10 if half else 1))
    batch = "batch_size"
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, [batch, "n"]),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, [batch, "total"]),
        helper.make_tensor_value_info("position_ids", TensorProto.INT64, [batch, "n"]),
        helper.make_tensor_value_info("past_key_values.0.key", TensorProto.FLOAT, [batch, 1, "past", WIDTH]),
    ]
    outputs = [
        helper.make_tensor_value_info(
            "logits", TensorProto.FLOAT16 if half else TensorProto.FLOAT, [batch, "r", WORDS]
        ),
        helper.make_tensor_value_info("present.0.key", TensorProto.FLOAT, [batch, 1, "total", WIDTH]),
    ]
    if state:
        inputs.append(helper.make_tensor_value_info("past_conv.0", TensorProto.FLOAT, [batch, WIDTH]))
        outputs.append(helper.make_tensor_value_info("present_conv.0", TensorProto.FLOAT, [batch, WIDTH]))
    if keep:
        inputs.append(helper.make_tensor_value_info("num_logits_to_keep", TensorProto.INT64, []))
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "summing", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    made: bytes = model.SerializeToString()
    return made


def expected(prompt: list[int], steps: int, state: bool = False, half: bool = False) -> list[int]:
    """The greedy tokens by the formula."""
    ids = list(prompt)
    for _ in range(steps):
        x = EMBEDDING[ids]
        y: Array = (x * np.cos(np.arange(len(ids)))[:, None]).sum(axis=0)
        if state and len(ids) > 1:
            y = y + x[-2]
        logits = (y @ HEAD).astype(np.float16 if half else np.float32)
        ids.append(int(logits.argmax()))
    return ids[len(prompt) :]


def written(model: DecoderModel, prompts: list[list[int]], **options: Any) -> list[list[int]]:
    made: list[list[int]] = [[] for _ in prompts]
    for piece in TextGenerator(model).generate_sync(prompts, GenerationOptions(max_new_tokens=12, **options)):
        made[piece.sequence].append(piece.id)
    return made


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_positions_and_masks__prompts_of_different_lengths__padded_before(half: bool, keep: bool) -> None:
    model = DecoderModel(pyruntime.InferenceSession(summing(half=half, keep=keep)))
    assert not model.right_padded and model.rewindable
    prompts = [[3, 4, 5, 6, 7], [8], [9, 10, 11]]
    assert written(model, prompts) == [expected(p, 12, half=half) for p in prompts]
    assert written(model, [prompts[0]], prefill_chunk=2) == [expected(prompts[0], 12, half=half)]
    assert written(model, [prompts[0]], lookup=4) == [expected(prompts[0], 12, half=half)]


def test_recurrent_states__a_prompt_goes_on_or_starts_over() -> None:
    model = DecoderModel(pyruntime.InferenceSession(summing(state=True)))
    assert not model.rewindable and set(model.caches) == {"past_key_values.0.key", "past_conv.0"}
    generator = TextGenerator(model)
    options = GenerationOptions(max_new_tokens=6, lookup=3)

    def run(prompt: list[int]) -> list[int]:
        return [piece.id for piece in generator.generate_sync(prompt, options)]

    first = run([1, 2, 3])
    assert first == expected([1, 2, 3], 6, state=True)
    longer = [1, 2, 3, *first, 4, 5]
    assert run(longer) == expected(longer, 6, state=True) and generator.reused == 8
    assert run([1, 2, 9]) == expected([1, 2, 9], 6, state=True) and generator.reused == 0
