"""The config entry `pyruntime.kv_cache_bits`: what becomes of declarations, dispatches and memory; what it refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime.device.null import NullDevice
from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import InvalidArgument
from pyruntime.ir import Array
from pyruntime.session import InferenceSession, SessionOptions
from tests.cache_models import CACHED, STATIC
from tests.contrib.decoder import decoder
from tests.session.doubles import on_device
from tests.window_models import GPU

LAYERS, HEADS, SIZE = 2, 2, 64
MODEL = decoder(layers=LAYERS, size=SIZE, positions=1024)
PASTS = list(MODEL.empty(1))


def options(bits: int | str = 0) -> SessionOptions:
    made = SessionOptions()
    if bits:
        made.add_session_config_entry("pyruntime.kv_cache_bits", str(bits))
    return made


def feeds(tokens: int, past: int, caches: dict[str, Any]) -> dict[str, Any]:
    ids = np.random.default_rng(tokens + 100 * past).integers(0, 50, (1, tokens))
    return {"input_ids": ids, "attention_mask": np.ones((1, past + tokens), np.int64), **caches}


def empty(bits: int) -> dict[str, Array]:
    if not bits:
        return MODEL.empty(1)
    return {name: np.zeros((1, HEADS, 0, SIZE * bits // 8 + 4), np.uint8) for name in PASTS}


@pytest.mark.parametrize("bits", [8, 4])
def test_session__cache_bits__inputs_and_outputs_are_bytes(bits: int) -> None:
    session = InferenceSession(MODEL.model, options(bits))
    given = {i.name: i for i in session.get_inputs()}
    for name in PASTS:
        assert (given[name].type, given[name].shape[3]) == ("tensor(uint8)", SIZE * bits // 8 + 4)
    for made in session.get_outputs()[1:]:
        assert made.type == "tensor(uint8)"
    assert (SIZE + 4) / (4 * SIZE) <= 0.27


class Steps:
    """A session on a device that only records, and its caches."""

    def __init__(self, session: InferenceSession, bits: int) -> None:
        self.session, self.past = session, 0
        self.caches: dict[str, Any] = dict(empty(bits))
        self.outputs = [o.name for o in session.get_outputs()]

    async def run(self, tokens: int) -> None:
        given = feeds(tokens, self.past, self.caches)
        made = await self.session._run_values(given, self.outputs, None, dict.fromkeys(self.outputs[1:]))
        self.caches = dict(zip(PASTS, (made[n] for n in self.outputs[1:]), strict=True))
        self.past += tokens

    @property
    def kernels(self) -> list[str]:
        """Those of the last run."""
        assert self.session._program is not None
        return [command.kernel for command in self.session._program.roots[-1].executable.plan.commands]


@pytest.mark.parametrize("bits", [8, 4])
def test_token__cache_bits__takes_the_dispatches_of_float_caches_and_grows_in_place(bits: int) -> None:
    found: dict[int, list[str]] = {}

    async def text(kind: int) -> None:
        device = NullDevice(GPU)
        with on_device(device):
            steps = Steps(await InferenceSession.create(MODEL.model, options(kind)), kind)
            await steps.run(300)
            await steps.run(1)
            places = [c.buffer for c in steps.caches.values()]
            before = sum(name == "copy" for name, _ in device.calls)
            for _ in range(3):
                await steps.run(1)
            assert [c.buffer for c in steps.caches.values()] == places
            assert sum(name == "copy" for name, _ in device.calls) == before
            for cache in steps.caches.values():
                assert isinstance(cache, DeviceTensor) and cache.type.nbytes == cache.type.size * (1 if kind else 4)
            found[kind] = steps.kernels
            steps.session.release()

    asyncio.run(text(0))
    asyncio.run(text(bits))
    assert len(found[bits]) == len(found[0])
    assert sum("packed_rows1" in kernel and "new_row1" in kernel for kernel in found[bits]) == LAYERS


@pytest.mark.parametrize("bits", [8, 4])
def test_text__cache_bits__on_a_gpu_is_that_of_numpy(bits: int, desktop_gpu: None) -> None:
    made: list[list[Array]] = []
    for providers in (["WebGpuExecutionProvider"], ["CPUExecutionProvider"]):
        session = InferenceSession(MODEL.model, options(bits), providers=providers)
        caches: dict[str, Any] = empty(bits)
        past, logits = 0, []
        for tokens in (40, 1, 7, 1, 1):
            values = session.run(None, feeds(tokens, past, caches))
            caches = dict(zip(PASTS, values[1:], strict=True))
            logits.append(values[0])
            past += tokens
        made.append(logits)
        session.release()
    for a, b in zip(*made, strict=True):
        np.testing.assert_allclose(a, b, 2e-2, 2e-2)  # a code may be off by one where it is rounded


def refused(model: bytes, bits: int | str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        InferenceSession(model, options(bits))


def test_session__cache_bits_that_do_not_fit__say_what_to_do() -> None:
    refused(MODEL.model, 5, "expected 8 or 4, got '5'")
    refused(CACHED["concat"].model, 8, "GroupQueryAttention")
    refused(CACHED["group_query_8"].model, 8, "an input of floats.*tensor.int8")


def test_session__cache_bits_and_another_reader_of_a_cache__names_it() -> None:
    model = onnx.load_from_string(MODEL.model)
    model.graph.node.append(onnx.helper.make_node("Neg", [PASTS[0]], ["negative"], name="other"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("negative", 1, None))
    refused(model.SerializeToString(), 8, f"'{PASTS[0]}' cannot be packed.*'other' \\(Neg\\)")


@pytest.mark.parametrize("bits", [8, 4])
def test_static_caches__cache_bits__are_written_over_in_place(bits: int) -> None:
    cached = STATIC["group_query_scalar"]
    floats, packed = InferenceSession(cached.model), InferenceSession(cached.model, options(bits))
    rows = packed.get_inputs()[3].shape[2]
    assert isinstance(rows, int)
    results: list[Array] = []
    for session, caches in (
        (floats, cached.empty(1)),
        (packed, {n: np.zeros((1, 2, rows, 2 * bits + 4), np.uint8) for n in ("past_k", "past_v")}),
    ):
        for new, past in ((9, 0), (1, 9)):
            y, *made = session.run(None, {**cached.feeds(1, new, past), **caches})
            caches = dict(zip(("past_k", "past_v"), made, strict=True))
        results.append(y)
    np.testing.assert_allclose(results[1], results[0], atol=0.02 if bits == 8 else 0.4)
