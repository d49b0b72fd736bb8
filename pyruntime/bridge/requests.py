"""JavaScript arrays to sessions: what `web/worker.js` calls.

`serve(function, *arguments)` awaits a function of this module or of `inspection.py` and answers `{value}` or
`{error: {name, message, traceback}}`, as JavaScript objects; `marshalling.py` says how tensors look. Models' bytes stay
in JavaScript and reach the GPU without passing through Python's memory. `create` and `run` belong to a request,
`{id, signal}`; `cancel` ends one by its id.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

import js
from pyodide.ffi import jsnull, to_js

from pyruntime.bridge import inspection, marshalling
from pyruntime.bridge.replays import expected_replays, replay_of
from pyruntime.bridge.sessions import OpenSession, open_sessions, session_of
from pyruntime.compiler.saved import ExternalFile, ModelFile, tree_hash
from pyruntime.device.execution.concurrency import forget_frames
from pyruntime.device.tensor import DeviceTensor
from pyruntime.device.webgpu.javascript import javascript_object
from pyruntime.ir import DeclaredTensor, HostTensor
from pyruntime.onnx.formats.source import ByteSource
from pyruntime.onnx.importer.model import ImportedModel
from pyruntime.session import InferenceSession
from pyruntime.session.aot.cached_plan import cached_plan_file
from pyruntime.session.base import Internals
from pyruntime.session.environment import device
from pyruntime.session.load.loading import Fetched, source_of
from pyruntime.session.web_api import providers, run_options, session_options, value_metadata

__all__ = [
    "cache_plan",
    "cancel",
    "create",
    "download",
    "forget",
    "materialize",
    "release",
    "run",
    "sampler",
    "serve",
    "share_memory",
    "upload",
]

JsObject: TypeAlias = Any
"""An object of JavaScript, as Pyodide hands it to Python."""

_hashes: WeakKeyDictionary[ByteSource, str] = WeakKeyDictionary()
"""`tree_hash` of files that models keep weights in."""
_handles = itertools.count(1)
_under_way: dict[int, Callable[[], None]] = {}
"""What ends each load and run that has not ended, by the request's id."""


async def serve(function: str, *arguments: Any) -> JsObject:
    """Answer `{value}`: what `function` returns, or `{error}`: the exception that it raised."""
    try:
        return _to_js({"value": await _FUNCTIONS[function](*arguments)})
    except Exception as error:  # noqa: BLE001  # boundary: a request: told to JavaScript
        text = "".join(traceback.format_exception(error))
        forget_frames(error)
        return _to_js({"error": {"name": type(error).__name__, "message": str(error), "traceback": text}})


def cancel(number: int) -> None:
    """End a `create` or `run` at the await it is in; nothing of it is left. Those that have ended are not touched."""
    end = _under_way.get(number)
    if end is not None:
        end()


@contextmanager
def _cancellable(request: JsObject, end: Callable[[], None]) -> Iterator[None]:
    if request.signal.aborted:  # before Python had its turn
        end()
    _under_way[request.id] = end
    try:
        yield
    finally:
        del _under_way[request.id]


async def create(
    request: JsObject,
    model: JsObject,
    external: JsObject,
    options: JsObject,
    report: JsObject,
    fetch_relative: JsObject = None,
) -> dict[str, Any]:
    """A session over `model`, an ArrayBuffer, a Blob, an `ArrivingBuffer` or a `ModelFile` of web/loading/.

    Args:
        request: see the module.
        model: the model file's bytes.
        external: `[path, bytes]` of each file that the model names as external data.
        options: onnxruntime-web's session options, those that are data.
        report: function that is called with `{phase, status, ms?}` as loading goes on.
        fetch_relative: function that fetches what is at an address relative to the model's; null where it has none.

    Returns:
        `handle` for the other functions, `inputs` and `outputs` as `{name, isTensor, type, shape}`, `decoder`: see
        `_decoder`, `replays` and `spares`: see `replays.py`.
    """
    plain = options.to_py()
    source = source_of(model)
    chosen = session_options(plain, [(path, buffer) for path, buffer in external])
    with _cancellable(request, lambda: chosen.set_load_cancellation_flag(True)):
        session = await InferenceSession.create(
            Fetched(source, fetch_relative or None),
            chosen,
            providers(plain.get("executionProviders")),
            progress=_progress(report),
        )
    try:
        decoder = await _decoder(session)
        replays, memory = await expected_replays(session)
    except BaseException:
        session.release()
        raise
    handle = next(_handles)
    open_sessions[handle] = OpenSession(session, source)
    return {
        "handle": handle,
        "inputs": [value_metadata(value) for value in session.get_inputs()],
        "outputs": [value_metadata(value) for value in session.get_outputs()],
        "decoder": decoder,
        "replays": replays,
        "spares": [marshalling.kept_to_wire(tensor) for tensor in memory],
    }


async def _decoder(session: InferenceSession) -> dict[str, Any] | None:
    """`decoder_facts` of a session that is to write text."""
    if '"names"' not in session.get_session_options().config("pyruntime.expects"):
        return None
    from pyruntime.generate.facts import facts_of  # few pages write text

    return await facts_of(session)


async def run(
    request: JsObject, handle: int, feeds: JsObject, fetches: JsObject, kept: JsObject, options: JsObject
) -> dict[str, Any]:
    """`outputs` by name: those that `fetches` names, or all where it is null; `replay`: see `replays.py`.

    Args:
        request: see the module.
        kept: by name, the outputs that stay on the GPU: null, or the tensor or buffer they are written to.
    """
    session = session_of(handle)
    internals = Internals(session)
    gpu = internals.program.device if internals.program else None
    values = {name: await marshalling.from_wire(name, value, gpu) for name, value in js.Object.entries(feeds)}
    names = internals.output_names(list(fetches) if fetches else None)
    kept_names = list(js.Object.keys(kept))
    targets = {
        name: value for name, value in js.Object.entries(kept) if gpu is not None and _stays(internals.model, name)
    }
    keep = {name: marshalling.held_as(name, t) if t and t.kind == "gpu" else None for name, t in targets.items()}
    chosen = run_options(options.to_py())
    if (report := getattr(request, "report", None)) is not None:
        chosen.on_progress = lambda done, total: report(
            _to_js({"phase": "run", "status": "progress", "loaded": done, "total": total})
        )
    with _cancellable(request, lambda: setattr(chosen, "terminate", True)):
        outputs = await internals.run_values(values, names, chosen, keep)
    wires: dict[str, Any] = {}
    stay = [name for name, target in targets.items() if not target]
    try:
        for name, value in outputs.items():
            wires[name] = await _to_wire(name, value, targets.get(name))
        replay = replay_of(session, values, names, stay) if len(stay) == len(kept_names) else None
    except BaseException:  # JavaScript does not hear of those that it would hold
        for name in stay:
            if (made := wires.get(name)) and made.get("kind") == "gpu":
                marshalling.dispose(made["gpu"])
        raise
    return {"outputs": wires, "replay": replay}


def _stays(model: ImportedModel, name: str) -> bool:
    """True for outputs that the GPU can hold."""
    declared = next((v.type for v in model.graph.outputs if v.name == name), None)
    return isinstance(declared, DeclaredTensor) and bool(declared.dtype.compute)


async def _to_wire(name: str, value: Any, target: JsObject) -> dict[str, Any] | None:
    """An output where the caller wants it; one without elements is on the host, where it needs no disposal."""
    if not isinstance(value, DeviceTensor):
        return marshalling.to_wire(name, value)
    if not target:
        empty = not value.type.size
        nothing = HostTensor(value.type, memoryview(b""))
        return marshalling.to_wire(name, nothing) if empty else marshalling.kept_to_wire(value)
    if target.kind == "gpu":
        return marshalling.kept_to_wire(value, int(target.gpu))
    await value.materialize()
    await marshalling.write_buffer(name, value, target.buffer)
    return {"kind": "written", "type": value.type.dtype.js_name, "dims": list(value.type.shape)}


async def sampler(handle: int | None, options: JsObject) -> JsObject | None:
    """A model that chooses tokens by the logits of a session; None where that is not on the GPU.

    Args:
        handle: the session; None: one that is on the GPU, or will be.
        options: those of `SamplerOptions` that are not its defaults.
    """
    from pyruntime.generate.sampling import SamplerOptions, sampler_model  # few pages write text

    if handle is not None and Internals(session_of(handle)).program is None:
        return None
    return js.Uint8Array.new(to_js(sampler_model(SamplerOptions(**options.to_py()))))


async def cache_plan(handle: int, model_hash: str, before: JsObject, hash_of: JsObject) -> dict[str, Any] | None:
    """`plan`: the file of what the session has planned, an ArrayBuffer; `adapter`: what it is for. None: nothing new.

    Args:
        model_hash: `tree_hash` of the model.
        before: what earlier sessions over the model have left, as this returns it.
        hash_of: gives `tree_hash` of a file, as `create` takes it.
    """
    session, opened = session_of(handle), open_sessions[handle]
    program, source, external = Internals(session).program, opened.source, Internals(session).files
    planned = WeakSet(stage.executable for stage in program.roots) if program else None
    if program is None or not planned or planned == opened.filed:
        return None
    files = {await _file_hash(p, f, hash_of): f for p, f in sorted(external.items())}
    inputs, outputs = (list(map(value_metadata, values)) for values in (session.get_inputs(), session.get_outputs()))
    model = ModelFile(source.size, model_hash)
    info = program.device.info.names
    known = next((b.plan for b in before if all(getattr(b.adapter, k) == v for k, v in info.items())), None)
    earlier = bytes(js.Uint8Array.new(known).to_py()) if known else None
    data = cached_plan_file(program, source, model, inputs, outputs, earlier, files, await _decoder(session))
    if not data:
        return None
    opened.filed = planned  # what did not come so far is tried again when the session rests next
    return {"plan": js.Uint8Array.new(to_js(data)).buffer, "adapter": info}


async def _file_hash(path: str, file: ByteSource, hash_of: JsObject) -> ExternalFile:
    """What a plan knows a file by; hashed where its bytes are, and once."""
    if file not in _hashes:
        outside = javascript_object(file)
        _hashes[file] = tree_hash(file, file.size) if outside is None else await hash_of(outside)
    return ExternalFile(path, file.size, _hashes[file])


async def release(handle: int) -> None:
    """Free everything of the session, on the GPU too."""
    opened = open_sessions.pop(handle, None)
    if opened is not None:
        opened.session.release()


async def download(number: int) -> dict[str, Any] | None:
    """A tensor that is on the GPU, as one on the host."""
    return marshalling.to_wire("", await marshalling.held(number).download())


async def upload(tensor: JsObject) -> dict[str, Any]:
    """A tensor of JavaScript's that stays on the GPU from now on. Raises where there is none."""
    value = await marshalling.from_wire("", tensor, None)
    return marshalling.kept_to_wire(await DeviceTensor.upload(value, await device()))


def forget(number: int) -> None:
    """Forget a tensor that is on the GPU; without a session nothing is kept for the next one."""
    marshalling.dispose(number)
    if not open_sessions:
        DeviceTensor.trim_all()


def materialize(number: int) -> JsObject:
    """Have a tensor in a buffer of its own at once, for a page that looks into it."""
    return _to_js(marshalling.materialized(number))


def share_memory(number: int, js_type: str, dims: JsObject, counted: int | None = None) -> int:
    """The number of another tensor in the memory of the one that JavaScript holds under `number`."""
    return marshalling.share_memory(number, js_type, dims, counted)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(inspection, name) for name in inspection.__all__},
    **{name: function for name in __all__ if name != "serve" and iscoroutinefunction(function := globals()[name])},
}
"""What `serve` awaits."""


def _progress(report: JsObject) -> Callable[[dict[str, Any]], None]:
    return lambda event: report(_to_js(event))


def _to_js(value: object) -> JsObject:
    return to_js(_nulls(value), dict_converter=js.Object.fromEntries)


def _nulls(value: object) -> object:
    """`value` with JavaScript's null for None, which would become undefined."""
    if isinstance(value, dict):
        return {key: _nulls(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_nulls(item) for item in value]
    return jsnull if value is None else value
