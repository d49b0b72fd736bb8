"""What `memory_plan` lists is what the WebGPU implementation has, counted where buffers are made and destroyed."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import pyruntime as ort
from pyruntime.device.desktop.memory import Readback
from tests.contrib.decoder import decoder
from tests.desktop import desktop_device


class Watched:
    """Bytes of the buffers that a device has now, beyond those that it had when this began."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.device = desktop_device()
        self._live: dict[int, int] = {}
        self._patch = patch
        kind: Any = type(self.device.gpu_device)
        create = kind.create_buffer
        patch.setattr(kind, "create_buffer", lambda *args, **kwargs: self._made(create(*args, **kwargs)))
        self._destroy: Any = None
        gc.collect()
        self._before = self.ledger

    @property
    def ledger(self) -> int:
        return sum(self.device.ledger.by_label.values())

    def _made(self, buffer: Any) -> Any:
        if self._destroy is None:
            self._destroy = type(buffer).destroy
            self._patch.setattr(type(buffer), "destroy", lambda gone: self._gone(gone))
        self._live[id(buffer)] = buffer.size
        return buffer

    def _gone(self, buffer: Any) -> None:
        self._live.pop(id(buffer), None)
        self._destroy(buffer)

    @property
    def there(self) -> int:
        return self._before + sum(self._live.values())

    def check(self, session: ort.InferenceSession) -> None:
        """Compare the session's list, the ledger and what was counted."""
        gc.collect()
        memory = session.memory_plan
        assert sum(memory.allocated.values()) == self.ledger == self.there


@pytest.fixture
def watched(desktop_gpu: None, monkeypatch: pytest.MonkeyPatch) -> Watched:
    desktop_device()._staging.clear()  # what an earlier test has left would be destroyed uncounted
    return Watched(monkeypatch)


def test_memory_plan__decoder_with_caches_on_the_gpu__is_what_the_implementation_has(watched: Watched) -> None:
    made = decoder(size=64, positions=4096)
    session = ort.InferenceSession(made.model)
    watched.check(session)
    past: dict[str, Any] = {n: ort.OrtValue.ortvalue_from_numpy(a, "webgpu") for n, a in made.empty(1).items()}
    length = 0
    for tokens in (8, 1, 1, 60, 1, 300, 1):
        length += tokens
        binding = session.io_binding()
        binding.bind_cpu_input("input_ids", np.ones((1, tokens), np.int64))
        binding.bind_cpu_input("attention_mask", np.ones((1, length), np.int64))
        for name, value in past.items():
            binding.bind_ortvalue_input(name, value)
        names = [output.name for output in session.get_outputs()]
        for name in names:
            binding.bind_output(name, "webgpu")
        session.run_with_iobinding(binding)
        outputs = dict(zip(names, binding.get_outputs(), strict=True))
        past = {name: outputs[name.replace("past", "present")] for name in past}
        watched.check(session)
    del past, outputs, binding
    watched.check(session)
    session.release()


def test_ledger__run_in_flight__has_its_staging_buffers(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    made = decoder(size=64, positions=4096)
    session = ort.InferenceSession(made.model)
    encode, seen = Readback.encode, list[bool]()

    def look(readback: Readback, *args: Any) -> None:
        encode(readback, *args)
        seen.append(watched.ledger == watched.there)

    monkeypatch.setattr(Readback, "encode", look)

    def run(tokens: int) -> None:
        ones = np.ones((1, tokens), np.int64)
        session.run(None, {"input_ids": ones, "attention_mask": ones, **made.empty(1)})

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(run, (3, 40, 5, 200, 7, 3)))
    assert seen == [True] * 6
    watched.check(session)
    session.release()
