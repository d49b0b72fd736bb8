"""Runs that are planned before the first one: what a decoder's inputs tell, and what they do not."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime.device.base import Write
from pyruntime.device.null import NullDevice
from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import InvalidArgument
from pyruntime.ir import DeclaredTensor, DType, Graph, TensorType, ValueInfo
from pyruntime.session import InferenceSession, SessionOptions
from pyruntime.session.run.expected_runs import PROMPT, expected_logits, expected_runs
from tests.compiler.counts.test_decode_counts import GROUPS, SIZE, WORDS, Decoder
from tests.session.doubles import on_device

CACHE = DeclaredTensor(DType.FLOAT, ("batch", 2, "past", 8))
IDS = DeclaredTensor(DType.INT64, ("batch", "tokens"))
MASK = DeclaredTensor(DType.INT64, ("batch", "past + tokens"))
STAY = json.dumps({"staying": None})


def graph(inputs: Mapping[str, DeclaredTensor], outputs: Mapping[str, DeclaredTensor]) -> Graph:
    given, wanted = ([ValueInfo(n, t) for n, t in values.items()] for values in (inputs, outputs))
    return Graph("decoder", given, wanted)


def test_decoder__ids_mask_and_caches__a_prompt_and_a_token() -> None:
    logits = DeclaredTensor(DType.FLOAT, ("batch", "tokens", 100))
    made = graph({"ids": IDS, "mask": MASK, "past.0": CACHE}, {"logits": logits, "present.0": CACHE})
    prompt, token = expected_runs(made, json.dumps({"staying": ["present.0"]}))
    assert {n: t.shape for n, t in prompt.arrived.items() if isinstance(t, TensorType)} == {
        "ids": (1, PROMPT),
        "mask": (1, PROMPT),
        "past.0": (1, 2, 0, 8),
    }
    assert {n: t.shape for n, t in token.arrived.items() if isinstance(t, TensorType)} == {
        "ids": (1, 1),
        "mask": (1, PROMPT + 1),
        "past.0": (1, 2, PROMPT, 8),
    }
    assert prompt.outputs == token.outputs == ("logits", "present.0")
    assert prompt.on_device == {"present.0"} and token.on_device == {"present.0", "past.0"}
    prompt, token = expected_runs(made, json.dumps({"staying": None, "text": True}))
    assert prompt.outputs == ("present.0",) and token.outputs == ("logits", "present.0")
    assert token.on_device == {"logits", "present.0", "ids", "past.0"}


def test_logits__of_a_decoder__those_that_come_to_the_host() -> None:
    logits = DeclaredTensor(DType.FLOAT16, ("batch", "tokens", 100))
    made = graph({"ids": IDS, "mask": MASK, "past.0": CACHE}, {"logits": logits, "present.0": CACHE})
    runs = expected_runs(made, json.dumps({"staying": ["present.0"]}))
    wanted = {"name": "logits", "type": "float16", "dims": [1, 1, 100], "ids": "int64"}
    assert expected_logits(made, runs) == wanted
    assert expected_logits(made, []) is None
    assert expected_logits(made, expected_runs(made, STAY)) is None


@pytest.mark.parametrize(
    "others",
    [
        {"logits": DeclaredTensor(DType.FLOAT, ("batch", "tokens", "words"))},
        {"logits": DeclaredTensor(DType.FLOAT, ("batch", 100))},
        {"logits": DeclaredTensor(DType.INT64, ("batch", "tokens", 100))},
        {n: DeclaredTensor(DType.FLOAT, ("batch", "tokens", 100)) for n in ("logits", "hidden")},
    ],
)
def test_logits__of_another_form__none_are_expected(others: Mapping[str, DeclaredTensor]) -> None:
    made = graph({"ids": IDS, "mask": MASK, "past.0": CACHE}, {**others, "present.0": CACHE})
    assert expected_logits(made, expected_runs(made, json.dumps({"staying": ["present.0"]}))) is None


@pytest.mark.parametrize(
    "inputs",
    [
        {"ids": IDS, "mask": MASK},
        {"ids": IDS, "past.0": CACHE, "x": DeclaredTensor(DType.FLOAT, ("batch", 3, 224, 224))},
        {"ids": IDS, "past.0": CACHE, "use_cache_branch": DeclaredTensor(DType.BOOL, (1,))},
        {"ids": IDS, "past.0": DeclaredTensor(DType.FLOAT, ("batch", "heads", "past", 8))},
        {"ids": DeclaredTensor(DType.INT64, (None, None)), "past.0": CACHE},
        {"past.0": CACHE},
    ],
    ids=["no caches", "a picture", "a branch", "open heads", "sizes without names", "no ids"],
)
def test_others__nothing_is_expected(inputs: Mapping[str, DeclaredTensor]) -> None:
    assert not expected_runs(graph(inputs, {"present.0": CACHE}), STAY)


def test_caches__read_back__nothing_is_expected() -> None:
    made = graph({"ids": IDS, "past.0": CACHE}, {"logits": CACHE, "present.0": CACHE})
    assert not expected_runs(made, json.dumps({"staying": []}))


@pytest.mark.parametrize("entry", ["", "1", "[]", "{}", '{"staying": "all"}', '{"staying": [1]}'])
def test_entry__of_another_form__says_what_it_is(entry: str) -> None:
    with pytest.raises(InvalidArgument, match=r"pyruntime\.expects"):
        expected_runs(graph({}, {}), entry)


def decoder_with_mask(layers: int) -> bytes:
    """The decoder with a mask, whose length and sum are the lengths, as onnxruntime-genai's builder writes it."""
    model = onnx.load_from_string(Decoder(layers, False, "").model())
    inputs = [v for v in model.graph.input if v.name not in ("lengths", "total")]
    del model.graph.input[:]
    model.graph.input.extend([*inputs, onnx.helper.make_tensor_value_info("mask", 7, ["B", "T"])])
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array(v, np.int64), n) for n, v in {"one": [1], "at": 1}.items()
    )
    made: tuple[tuple[str, list[str], str, dict[str, Any]], ...] = (
        ("ReduceSum", ["mask", "one"], "sum", {"keepdims": 0}),
        ("Sub", ["sum", "one"], "less", {}),
        ("Cast", ["less"], "lengths", {"to": 6}),
        ("Shape", ["mask"], "shape", {}),
        ("Gather", ["shape", "at"], "length", {}),
        ("Cast", ["length"], "total", {"to": 6}),
    )
    nodes = [onnx.helper.make_node(op, given, [y], **more) for op, given, y, more in made]
    every = [*nodes, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(every)
    return bytes(model.SerializeToString())


def with_open_heads(model: bytes) -> bytes:
    """The same with names in the place of a head's components, as onnxruntime-genai's builder declares caches."""
    made = onnx.load_from_string(model)
    for value in made.graph.input:
        if value.name.startswith("past."):
            value.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    return bytes(made.SerializeToString())


class Watching(NullDevice):
    """Notes how many pipelines have been asked for when weights go up."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    async def upload(self, writes: Sequence[Write]) -> None:
        self.asked += [self.ledger.pipelines] if writes else []
        await super().upload(writes)


def run_decoder(expects: str, open_heads: bool = False, prompt: int = 40) -> tuple[list[tuple[int, int]], Watching]:
    """Plans and pipelines after the session is made and after each of a prompt and four tokens more."""
    device, layers = Watching(), 2
    parts = [f"{i}.{part}" for i in range(layers) for part in ("key", "value")]

    async def main() -> list[tuple[int, int]]:
        def counts() -> tuple[int, int]:
            assert session._program is not None
            return len(session._program.roots), device.ledger.pipelines

        options = SessionOptions()
        if expects:
            options.add_session_config_entry("pyruntime.expects", expects)
        model = decoder_with_mask(layers)
        session = await InferenceSession.create(with_open_heads(model) if open_heads else model, options)
        found = [counts()]
        state: dict[str, Any] = {f"past.{p}": np.zeros((1, GROUPS, 0, SIZE), np.float32) for p in parts}
        total = 0
        for count in (prompt, 1, 1, 1, 1):
            total += count
            feeds = {
                "ids": np.arange(count)[None] % WORDS,
                "mask": np.ones((1, total), np.int64),
                **state,
            }
            keep: dict[str, Any] = {f"present.{p}": None for p in parts}
            names = ["logits", *keep] if count > 1 else [*keep, "logits"]
            made = await session._run_values(feeds, names, None, keep)
            state = {f"past.{p}": made[f"present.{p}"] for p in parts}
            found.append(counts())
        session.release()
        state.clear()
        feeds.clear()
        del made
        gc.collect()
        DeviceTensor.trim(device)
        return found

    with on_device(device):
        return asyncio.run(main()), device


@pytest.mark.parametrize(("open_heads", "prompt"), [(False, 40), (True, 40), (False, 9), (False, PROMPT)])
def test_session__that_expects_text__plans_and_uploads_before_the_first_run(open_heads: bool, prompt: int) -> None:
    """From the shortest prompt on that the plan for long ones serves: its caches are short and have few elements."""
    parts = [f"present.{i}.{part}" for i in range(2) for part in ("key", "value")]
    expected, device = run_decoder(json.dumps({"staying": parts}), open_heads, prompt)
    assert expected[0][0] == 2 and expected == expected[:1] * 6
    assert device.asked[0] == expected[0][1], "all are compiled while weights are on their way"
    later, other = run_decoder("", prompt=prompt)
    assert later[0] == (0, 0) and later[-1] > (0, 0)
    assert device.ledger.total == other.ledger.total == 0


def test_session__whose_prediction_cannot_be__is_made_as_without() -> None:
    """The step of this one waits for the value of `total`, which only a run brings."""
    model, device = Decoder(2, False, "").model(), NullDevice()

    async def main() -> None:
        options = SessionOptions()
        options.add_session_config_entry("pyruntime.expects", STAY)
        session = await InferenceSession.create(model, options)
        assert session._program is not None
        assert not session._program.roots and not session._program.dynamic_dimensions.reasons
        session.release()

    with on_device(device):
        asyncio.run(main())
    assert device.ledger.total == 0
