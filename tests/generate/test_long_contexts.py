"""Contexts of 16,384 tokens: memory of a prompt's parts, and what a token allocates, copies and dispatches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pyruntime.device.base import Raw, Read, Write
from pyruntime.device.null import NullDevice
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.decoding import Decoding
from pyruntime.generate.options import GenerationOptions
from pyruntime.session import InferenceSession, SessionOptions
from tests.contrib.decoder import decoder
from tests.session.doubles import on_device
from tests.window_models import GPU

LONG, CHUNK = 16_384, 512
HEADS, SIZE, CACHES = 2, 64, 4
MODEL = decoder(size=SIZE, positions=2 * LONG).model


class Counting(NullDevice):
    """Counts the bytes that submits write."""

    written = 0

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        self.written += sum(w.target.nbytes for w in writes)
        return await super().submit(recording, writes, reads, numbers)


class Text:
    """A text on a device that records what is done."""

    def __init__(self, device: Counting, model: DecoderModel) -> None:
        self.device, self.model = device, model
        self.decoding = Decoding(model, GenerationOptions(prefill_chunk=CHUNK))

    async def append(self, tokens: int) -> None:
        await self.decoding.append([[1] * tokens])

    async def token(self) -> tuple[int, int, int, int]:
        """Compute one more: bytes allocated, bytes copied, bytes written, dispatches."""
        before, self.device.written = len(self.device.calls), 0
        await self.append(1)
        calls: list[tuple[str, Any]] = self.device.calls[before:]
        allocated = sum(what[1] for name, what in calls if name == "allocate")
        copied = sum(what[0].nbytes for name, what in calls if name == "copy")
        return allocated, copied, self.device.written, len(self.commands)

    @property
    def _plan(self) -> Any:
        program = self.model._internals.program
        assert program is not None
        return program.roots[-1].executable.plan

    @property
    def commands(self) -> list[str]:
        return [command.kernel for command in self._plan.commands]

    @property
    def arena(self) -> int:
        return sum(self._plan.arenas)


async def text(device: Counting, bits: int) -> Text:
    options = SessionOptions()
    if bits:
        options.add_session_config_entry("pyruntime.kv_cache_bits", str(bits))
    names = {f"past.{i}.{part}": f"present.{i}.{part}" for i in range(2) for part in ("key", "value")}
    return Text(device, DecoderModel(await InferenceSession.create(MODEL, options), caches=names))


@pytest.mark.parametrize("bits", [0, 8, 4])
def test_token__after_sixteen_thousand__does_what_it_does_after_a_hundred(bits: int) -> None:
    async def main() -> None:
        device = Counting(GPU)
        with on_device(device):
            made = await text(device, bits)
            await made.append(128)
            await made.token()
            first = await made.token()
            while made.decoding.cache.length + CHUNK < LONG:
                await made.append(CHUNK)
            await made.token()
            allocated, copied, written, dispatches = await made.token()
            assert max(allocated, first[0]) <= 1024, "logits"
            assert copied == first[1] == 0
            assert dispatches == first[3]
            assert written - first[2] <= 8 * LONG + 64, "the mask, and nothing else, grows"

    asyncio.run(main())


@pytest.mark.parametrize("bits", [0, 8])
def test_prompt__of_sixteen_thousand_tokens__takes_the_memory_of_a_part_and_the_caches(bits: int) -> None:
    async def main() -> None:
        device = Counting(GPU)
        with on_device(device):
            made = await text(device, bits)
            arenas = []
            while made.decoding.cache.length < LONG:
                await made.append(CHUNK)
                arenas.append(made.arena)
            assert max(arenas[1:]) <= 2 * arenas[1]
            calls: list[tuple[str, Any]] = device.calls
            copied = sum(what[0].nbytes for name, what in calls if name == "copy")
            row = SIZE * bits // 8 + 4 if bits else 4 * SIZE
            assert copied <= 2 * CACHES * HEADS * LONG * row, "capacity doubles"

    asyncio.run(main())


def test_prompt__in_parts__computes_logits_of_the_last_part_alone() -> None:
    async def main() -> None:
        device = Counting(GPU)
        with on_device(device):
            made = await text(device, 0)
            await made.append(3 * CHUNK)
            program = made.model._internals.program
            assert program is not None
            outputs = [stage.signature[1] for stage in program.roots]
            assert ["logits" in wanted for wanted in outputs] == [False, False, True]

    asyncio.run(main())
