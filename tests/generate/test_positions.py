"""Texts without a window: they end at the last position that the model knows, and the error says how to go on."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyruntime
from pyruntime.generate.beams import beam_search
from pyruntime.generate.decoding import Decoding
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions
from pyruntime.generate.positions import positions_of
from tests.generate.test_window import POSITIONS, model, prompt_of_length, written


def test_no_window__text_ends_where_the_model_knows_no_further_position() -> None:
    for prompt in ([1, 2, 3], prompt_of_length(30), prompt_of_length(POSITIONS)):
        given: list[dict[str, Any]] = [{}, {"lookup": 4}, {"do_sample": True, "seed": 1}]
        for more in given:
            options = GenerationOptions(max_new_tokens=60, **more)
            pieces = list(TextGenerator(model()).generate_sync(prompt, options))
            assert len(pieces) == POSITIONS - len(prompt)
            assert [piece.finish for piece in pieces[-1:]] in (["length"], [])
    ((ids, _),) = asyncio.run(beam_search(model(), [1, 2], 3, GenerationOptions(max_new_tokens=60)))
    assert len(ids) == POSITIONS


def test_no_window__steps_beyond_the_last_position__are_refused() -> None:
    async def run() -> None:
        decoding = Decoding(model(), GenerationOptions())
        await decoding.append([prompt_of_length(POSITIONS)])
        await decoding.next()
        assert decoding.done
        with pytest.raises(pyruntime.InvalidArgument, match="1 tokens after 32 are more than the 32 positions"):
            await decoding.next()

    asyncio.run(run())


def test_no_window__longer_prompt_or_wider_window__says_what_to_do() -> None:
    long = prompt_of_length(POSITIONS + 1)
    with pytest.raises(pyruntime.InvalidArgument, match=r"GenerationOptions\(window=32\)"):
        written(TextGenerator(model()), long, max_new_tokens=3)
    with pytest.raises(pyruntime.InvalidArgument, match=r"GenerationOptions\(window=32\)"):
        asyncio.run(beam_search(model(), long, 2, GenerationOptions(max_new_tokens=3)))
    wide = GenerationOptions(max_new_tokens=3, window=33)
    with pytest.raises(pyruntime.InvalidArgument, match="at most the 32 positions"):
        list(TextGenerator(model()).generate_sync([1], wide))
    with pytest.raises(pyruntime.InvalidArgument, match="at most the 32 positions"):
        asyncio.run(beam_search(model(), [1], 2, wide))


@pytest.mark.parametrize(
    ("node", "rows"),
    [
        (helper.make_node("Gather", ["table", "position_ids"], ["y"]), 9),
        (helper.make_node("Gather", ["table", "other"], ["y"]), None),
        (helper.make_node("RotaryEmbedding", ["x", "table", "table", "position_ids"], ["y"]), 9),
        (
            helper.make_node("RotaryEmbedding", ["x", "position_ids", "table", "table"], ["y"], domain="com.microsoft"),
            9,
        ),
        (
            helper.make_node(
                "MRotaryEmbedding",
                ["x", "position_ids", "table", "table"],
                ["y"],
                domain="com.microsoft",
                mrope_section=[2, 1, 1],
            ),
            9,
        ),
    ],
    ids=["learned", "no positions", "rotary", "com.microsoft rotary", "com.microsoft rotary of three positions"],
)
def test_positions__of_tables_in_a_graph__their_rows(node: Any, rows: int | None) -> None:
    names = ("position_ids", "other")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 2, "n", 8])]
    inputs += [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "n"]) for name in names]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    table = numpy_helper.from_array(np.zeros((9, 4), np.float32), "table")
    graph = helper.make_graph([node], "g", inputs, outputs, [table])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    assert positions_of(pyruntime.InferenceSession(data)._model.graph, "position_ids") == rows
