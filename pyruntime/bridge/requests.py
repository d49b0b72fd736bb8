"""Requests from JavaScript: the functions that the worker (`web/worker/`) calls.

`serve(function, *arguments)` awaits a function of this module or of `inspection.py`, and returns `{value}` or `{error:
{name, message, traceback}}` as a JavaScript object. `marshalling.py` defines the format of tensors. Model bytes stay in
JavaScript and are uploaded from there. `create` and `run` take a request, `{id, signal}`; `cancel` ends the request
with that id.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import js
from pyodide.ffi import jsnull, to_js

from pyruntime.bridge import inspection, marshalling
from pyruntime.bridge.replays import expected_replays, replay_of
from pyruntime.bridge.sessions import OpenSession, open_sessions, session_of
from pyruntime.compiler.saved import ExternalFile, ModelFile, tree_hash
from pyruntime.device.execution.concurrency import forget_frames
from pyruntime.device.tensor import DeviceTensor
from pyruntime.device.webgpu.javascript import JsObject, javascript_object
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

_hashes: WeakKeyDictionary[ByteSource, str] = WeakKeyDictionary()
"""Cached `tree_hash` of external data files."""
_handles = itertools.count(1)
_under_way: dict[int, Callable[[], None]] = {}
"""Functions that cancel the running loads and runs, by request id."""


async def serve(function: str, *arguments: Any) -> JsObject:
    """Call `function`; return `{value}` with its result, or `{error}` with the exception."""
    try:
        return _to_js({"value": await _FUNCTIONS[function](*arguments)})
    except Exception as error:  # noqa: BLE001  # boundary: a request; the page gets the error
        text = "".join(traceback.format_exception(error))
        forget_frames(error)
        return _to_js({"error": {"name": type(error).__name__, "message": str(error), "traceback": text}})


def cancel(number: int) -> None:
    """Cancel a `create` or `run` at its current await; its resources are freed. Finished requests are ignored."""
    end = _under_way.get(number)
    if end is not None:
        end()


@contextmanager
def _cancellable(request: JsObject, end: Callable[[], None]) -> Iterator[None]:
    if request.signal.aborted:  # aborted before Python saw the request
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
    """Create a session for `model`: an ArrayBuffer, a Blob, an `ArrivingBuffer` or a `ModelFile` of web/loading/.

    Args:
        request: see the module.
        model: bytes of the model file.
        external: `[path, bytes]` of each external data file.
        options: onnxruntime-web's session options, without functions.
        report: called with `{phase, status, ms?}` during loading.
        fetch_relative: fetches a URL relative to the model's; null where the model has none.

    Returns:
        `handle` for the other functions, `inputs` and `outputs` as `{name, isTensor, type, shape}`, `decoder` (see
        `_decoder`), `replays` and `spares` (see `replays.py`).
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
    """Return the `decoder_facts` of a session for text generation; None for other sessions."""
    if '"names"' not in session.get_session_options().config("pyruntime.expects"):
        return None
    from pyruntime.generate.facts import facts_of  # few pages write text

    return await facts_of(session)


async def run(
    request: JsObject, handle: int, feeds: JsObject, fetches: JsObject, kept: JsObject, options: JsObject
) -> dict[str, Any]:
    """Run a session; return `outputs` by name, and `replay` (see `replays.py`).

    Args:
        request: see the module.
        fetches: names of the outputs; null: all.
        kept: outputs that stay on the GPU, by name: null, or the tensor or buffer to write to.
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
    except BaseException:  # JavaScript gets no reference to tensors that were kept already
        for name in stay:
            if (made := wires.get(name)) and made.get("kind") == "gpu":
                marshalling.dispose(made["gpu"])
        raise
    return {"outputs": wires, "replay": replay}


def _stays(model: ImportedModel, name: str) -> bool:
    """Return whether the GPU can hold an output."""
    declared = next((v.type for v in model.graph.outputs if v.name == name), None)
    return isinstance(declared, DeclaredTensor) and bool(declared.dtype.compute)


async def _to_wire(name: str, value: Any, target: JsObject) -> dict[str, Any] | None:
    """Convert an output for the caller. Tensors without elements go to the host, so that they need no disposal."""
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
    """Return an ONNX model that selects tokens from a session's logits; None where the session does not run on the GPU.

    Args:
        handle: the session; None: one on the GPU, perhaps not created yet.
        options: fields of `SamplerOptions` that differ from the defaults.
    """
    from pyruntime.generate.sampling import SamplerOptions, sampler_model  # few pages write text

    if handle is not None and Internals(session_of(handle)).program is None:
        return None
    return js.Uint8Array.new(to_js(sampler_model(SamplerOptions(**options.to_py()))))


async def cache_plan(handle: int, model_hash: str, before: JsObject, hash_of: JsObject) -> dict[str, Any] | None:
    """Serialize the session's plans: `plan`, an ArrayBuffer, and `adapter`, its target. None: no new plans.

    Args:
        model_hash: `tree_hash` of the model.
        before: the plan file that earlier sessions of the model wrote.
        hash_of: computes the `tree_hash` of a file in the forms that `create` takes.
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
    opened.filed = planned  # what is missing is retried when the session is idle next
    return {"plan": js.Uint8Array.new(to_js(data)).buffer, "adapter": info}


async def _file_hash(path: str, file: ByteSource, hash_of: JsObject) -> ExternalFile:
    """Return the identity of an external file in a plan; its hash is computed once, where its bytes are."""
    if file not in _hashes:
        outside = javascript_object(file)
        _hashes[file] = tree_hash(file, file.size) if outside is None else await hash_of(outside)
    return ExternalFile(path, file.size, _hashes[file])


async def release(handle: int) -> None:
    """Release the session with all its memory, on the GPU too."""
    opened = open_sessions.pop(handle, None)
    if opened is not None:
        opened.session.release()


async def download(number: int) -> dict[str, Any] | None:
    """Copy a tensor from the GPU to the host."""
    return marshalling.to_wire("", await marshalling.held(number).download())


async def upload(tensor: JsObject) -> dict[str, Any]:
    """Upload a tensor, which stays on the GPU. Raises an error where there is no GPU."""
    value = await marshalling.from_wire("", tensor, None)
    return marshalling.kept_to_wire(await DeviceTensor.upload(value, await device()))


def forget(number: int) -> None:
    """Forget a tensor on the GPU; without sessions, also free the memory kept for later tensors."""
    marshalling.dispose(number)
    if not open_sessions:
        DeviceTensor.trim_all()


def materialize(number: int) -> JsObject:
    """Move a tensor to a separate buffer immediately, for a page that accesses the buffer."""
    return _to_js(marshalling.materialized(number))


def share_memory(number: int, js_type: str, dims: JsObject, counted: int | None = None) -> int:
    """Create a tensor in the memory of tensor `number`; return its number."""
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
    """Replace None with JavaScript's null; None alone would become undefined."""
    if isinstance(value, dict):
        return {key: _nulls(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_nulls(item) for item in value]
    return jsnull if value is None else value
