"""Under CPython the device opens in a thread while the model is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyruntime as ort
from pyruntime.device.desktop import discovery
from pyruntime.device.desktop.adapters import Choice
from pyruntime.device.desktop.device import DesktopDevice
from pyruntime.errors import EPFail
from pyruntime.session import environment
from pyruntime.session.aot.plan_store import PlanStore
from pyruntime.session.load import creation
from tests.desktop import desktop_device

DIGITS = Path(__file__).parents[3] / "models" / "digits.onnx"
FEED = {"image": np.zeros((1, 1, 16, 16), np.float32)}


@pytest.fixture
def closed(desktop_gpu: None) -> Iterator[DesktopDevice]:
    """The device, which sessions do not know: they open one."""
    device = desktop_device()
    environment._held.clear()
    yield device
    environment._held.clear()
    environment._held[None] = device


@pytest.fixture
def begun(closed: DesktopDevice, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the device begins to open; models are read after that."""
    begun, read = threading.Event(), creation._read

    def open_device(choice: Choice) -> Any:
        assert not begun.is_set(), "it is opened once"
        begun.set()
        return closed

    def late(*args: Any) -> Any:
        assert begun.wait(60), "the device opens before the model is read"
        return read(*args)

    monkeypatch.setattr(discovery, "open_device", open_device)
    monkeypatch.setattr(creation, "_read", late)
    return begun


def test_create__no_device_yet__it_opens_while_the_model_is_read(begun: threading.Event) -> None:
    session = ort.InferenceSession(str(DIGITS))
    assert session.get_providers()[0] == "WebGpuExecutionProvider"
    assert len(session.run(None, FEED)) == len(session.get_outputs())


def test_create__stored_plans__are_ready_to_be_found_while_the_device_opens(
    closed: DesktopDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ready, of = threading.Event(), PlanStore.of

    def noted(*args: Any) -> Any:
        made = of(*args)
        ready.set()
        return made

    def open_device(choice: Choice) -> Any:
        assert ready.wait(20), "what does not need the device comes first"
        return closed

    monkeypatch.setattr(PlanStore, "of", staticmethod(noted))
    monkeypatch.setattr(discovery, "open_device", open_device)
    monkeypatch.setenv("PYRUNTIME_CACHE", str(tmp_path))
    ort.InferenceSession(str(DIGITS)).run(None, FEED)
    assert [path.suffix for path in (tmp_path / "plans").iterdir()] == [".plan"]


def test_create__on_the_cpu__no_device_opens(closed: DesktopDevice) -> None:
    ort.InferenceSession(str(DIGITS), providers=["CPUExecutionProvider"])
    assert not any(thread.name == "pyruntime-device" for thread in threading.enumerate())
    assert environment.opened() is None


def test_create__the_device_does_not_open__runs_on_the_cpu_and_says_why(
    begun: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(choice: Choice) -> Any:
        begun.set()
        raise EPFail("the adapter refused a device")

    monkeypatch.setattr(discovery, "open_device", refuse)
    session = ort.InferenceSession(str(DIGITS))
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert any("the adapter refused a device" in text for text in session.summary()["warnings"])
