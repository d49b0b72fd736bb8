"""Descriptions of runs that the worker repeats without Python (`web/gpu/replay.js`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.device.execution.executable import Executable, Replay
from pyruntime.device.tensor import DeviceTensor
from pyruntime.device.webgpu.javascript import JsObject
from pyruntime.device.webgpu.pyodide import WebGpuDevice
from pyruntime.errors import DeviceLost, OutOfMemory
from pyruntime.ir import HostTensor, TensorType
from pyruntime.session import InferenceSession
from pyruntime.session.base import Internals
from pyruntime.session.run.dynamic_dimensions import sizes_data
from pyruntime.session.run.program import Program, Stage

__all__ = ["expected_replays", "replay_of"]

_replays: dict[Executable, JsObject] = {}
"""The replay object of each executable; its `live` is true until the executable is released or a replay fails."""


def replay_of(
    session: InferenceSession, feeds: Mapping[str, Any], outputs: Sequence[str], stay: Sequence[str]
) -> JsObject | None:
    """Return the replay object for feeds of these types and shapes; None where runs cannot be replayed."""
    program, device = _gpu(session)
    if program is None or device is None or not all(isinstance(v, HostTensor | DeviceTensor) for v in feeds.values()):
        return None
    found = program.replayable(feeds, outputs, stay)
    return None if found is None else _described(session, device, *found)


async def expected_replays(session: InferenceSession) -> tuple[list[JsObject], list[DeviceTensor]]:
    """Describe expected runs that were not requested yet, for replay by the worker.

    Returns:
        The replay objects, and tensors whose memory receives outputs of runs with host inputs only, so that prompts
            need no
        Python. There are no tensors where the device lacks memory, which the run will report, and nothing at all where
            the
        device was lost, which the run handles.
    """
    program, device = _gpu(session)
    if program is None or device is None:
        return [], []
    found = list(program.expected_replays())
    made = [
        TensorType(tensor.type.dtype, tuple(map(int, tensor.type.shape)))
        for _, replay in found
        if not replay.inputs
        for tensor in replay.outputs
    ]
    try:
        memory = await DeviceTensor.allocate(made, device)
    except OutOfMemory:
        memory = []
    except DeviceLost:
        return [], []
    return [_described(session, device, *each) for each in found], memory


def _gpu(session: InferenceSession) -> tuple[Program, WebGpuDevice] | tuple[None, None]:
    """Return program and device of a session whose runs can be replayed; (None, None) otherwise."""
    program = Internals(session).program
    if program is None or Internals(session).is_traced or not isinstance(device := program.device, WebGpuDevice):
        return None, None
    return (program, device) if device.lost is None else (None, None)


def _described(session: InferenceSession, device: WebGpuDevice, stage: Stage, replay: Replay) -> JsObject:
    executable = stage.executable
    known = executable in _replays
    if known and _replays[executable].live:
        return _replays[executable]
    made = device.replay_object(replay, _sizes(stage), executable.plan.params)
    made.seconds = Internals(session).run_seconds
    _replays[executable] = made
    if not known:
        executable.on_release.append(lambda: setattr(_replays.pop(executable), "live", False))
        executable.on_move.append(lambda: setattr(_replays[executable], "live", False))
    return made


def _sizes(stage: Stage) -> dict[str, Any] | None:
    """Return a stage's dynamic sizes and expressions over them: `Sizes` of web/gpu/sizes.js without the parameters."""
    if stage.sizes is None:
        return None
    plan = stage.executable.plan
    patches = [[p.offset, p.kind, p.expression] for p in plan.patches]
    return {**sizes_data(stage.sizes), "expressions": plan.expressions, "patches": patches}
