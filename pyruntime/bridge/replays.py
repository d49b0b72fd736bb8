"""Runs that the worker repeats without Python: what `web/gpu/replay.js` is given of a session's plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pyruntime.device.execution.executable import Executable, Replay
from pyruntime.device.tensor import DeviceTensor
from pyruntime.device.webgpu.pyodide import WebGpuDevice
from pyruntime.errors import DeviceLost, OutOfMemory
from pyruntime.ir import HostTensor, TensorType
from pyruntime.session import InferenceSession
from pyruntime.session.base import Internals
from pyruntime.session.run.dynamic_dimensions import sizes_data
from pyruntime.session.run.program import Program, Stage

__all__ = ["expected_replays", "replay_of"]

JsObject: TypeAlias = Any
"""An object of JavaScript, as Pyodide hands it to Python."""

_replays: dict[Executable, JsObject] = {}
"""What the worker was given of each executable to replay; `live` until it is released or a replay fails."""


def replay_of(
    session: InferenceSession, feeds: Mapping[str, Any], outputs: Sequence[str], stay: Sequence[str]
) -> JsObject | None:
    """Describe what the worker replays for feeds of the same types and shapes; None where it cannot."""
    program, device = _gpu(session)
    if program is None or device is None or not all(isinstance(v, HostTensor | DeviceTensor) for v in feeds.values()):
        return None
    found = program.replayable(feeds, outputs, stay)
    return None if found is None else _described(session, device, *found)


async def expected_replays(session: InferenceSession) -> tuple[list[JsObject], list[DeviceTensor]]:
    """Describe what the worker replays of runs that are expected and were not requested yet.

    Returns:
        These runs, and tensors in whose memory those fed by the host alone leave their outputs, so that prompts need no
        Python for it. No tensors where the device has no memory for them, which the run will report; nothing at all
        where the device was lost, which the run repairs.
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
    """The program and the device of a session whose runs may be replayed now."""
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
    """`Sizes` of web/gpu/sizes.js without the parameters: a stage's dynamic sizes, and what is computed from them."""
    if stage.sizes is None:
        return None
    plan = stage.executable.plan
    patches = [[p.offset, p.kind, p.expression] for p in plan.patches]
    return {**sizes_data(stage.sizes), "expressions": plan.expressions, "patches": patches}
