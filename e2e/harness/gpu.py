"""A GPU for native tests: dispatches run in headless Chromium, while Python runs under CPython.

Tests so use the WGSL compiler of users' browsers.
"""

from __future__ import annotations

import base64
import functools
import http.server
import shutil
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from playwright.sync_api import Playwright, sync_playwright

from pyruntime.kernels import Limits, Target
from tests.kernel_runner import Buffer, KernelRunner, Step

FLAGS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-webgpu",
]

_SMALL = 1 << 16

_FEATURES = """
async () => {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) return null;
  const {info, features} = adapter;
  const size = info.subgroupMinSize === info.subgroupMaxSize && info.subgroupMinSize;
  const subgroups = features.has('subgroups') ? ['subgroups', ...(size ? [`subgroup_size_${size}`] : [])] : [];
  const half = ['shader-f16'].filter((name) => features.has(name));
  return [...navigator.gpu.wgslLanguageFeatures, ...subgroups, ...half];
}
"""

_SCRIPT = """
async ({buffers, steps, reads}) => {
  if (!globalThis.gpu) {
    const adapter = await navigator.gpu.requestAdapter();
    const limits = {};
    for (const k of ['maxStorageBuffersPerShaderStage', 'maxStorageBufferBindingSize', 'maxBufferSize',
                     'maxComputeWorkgroupStorageSize']) limits[k] = adapter.limits[k];
    const requiredFeatures = ['subgroups', 'shader-f16'].filter((name) => adapter.features.has(name));
    const device = await adapter.requestDevice({requiredLimits: limits, requiredFeatures});
    globalThis.gpu = {device, pipelines: new Map()};
  }
  const {device, pipelines} = globalThis.gpu;
  const fetched = async (path) => new Uint8Array(await (await fetch(path, {cache: 'no-store'})).arrayBuffer());
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const errors = [];
  const made = await Promise.all(buffers.map(async ({size, text, path}) => {
    const whole = new Uint8Array(size).fill(0xcd);
    whole.set(path ? await fetched(path) : Uint8Array.fromBase64(text));
    const buffer = device.createBuffer({size, usage});
    device.queue.writeBuffer(buffer, 0, whole);
    return buffer;
  }));
  device.pushErrorScope('validation');
  const wanted = new Map(steps.map(({source, entry}) => [entry + source, [source, entry]]));
  await Promise.all([...wanted].filter(([key]) => !pipelines.has(key)).map(async ([key, [source, entry]]) => {
    const module = device.createShaderModule({code: source});
    const info = await module.getCompilationInfo();
    const bad = info.messages.filter((m) => m.type === 'error');
    if (bad.length) { errors.push(...bad.map((m) => `${m.lineNum}:${m.linePos} ${m.message}\\n${source}`)); return; }
    try {
      pipelines.set(key, await device.createComputePipelineAsync(
        {layout: 'auto', compute: {module, entryPoint: entry}}));
    } catch (error) { errors.push(`${error.message}\\n${source}`); }
  }));
  if (errors.length) { device.popErrorScope(); return {errors}; }
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  for (const {source, entry, bound, params, grid} of steps) {
    const pipeline = pipelines.get(entry + source);
    const entries = bound.map((b, i) => ({binding: i, resource: {buffer: made[b]}}));
    if (params !== null) {
      const data = Uint8Array.fromBase64(params);
      const uniform = device.createBuffer({size: data.length, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST});
      device.queue.writeBuffer(uniform, 0, data);
      entries.push({binding: bound.length, resource: {buffer: uniform}});
    }
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, device.createBindGroup({layout: pipeline.getBindGroupLayout(0), entries}));
    pass.dispatchWorkgroups(...grid);
  }
  pass.end();
  const staging = reads.map((b) => {
    const buffer = device.createBuffer({size: made[b].size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST});
    encoder.copyBufferToBuffer(made[b], 0, buffer, 0, made[b].size);
    return buffer;
  });
  device.queue.submit([encoder.finish()]);
  const error = await device.popErrorScope();
  if (error) return {errors: [error.message, ...steps.map((s) => s.source)]};
  const outputs = [];
  for (const buffer of staging) {
    await buffer.mapAsync(GPUMapMode.READ);
    outputs.push(new Uint8Array(buffer.getMappedRange()).toBase64());
    buffer.destroy();
  }
  made.forEach((b) => b.destroy());
  return {outputs};
}
"""


class Tab(Protocol):
    """The part of a browser page's interface that is used."""

    def goto(self, url: str, /) -> Any: ...

    def evaluate(self, function: str, argument: Any = None, /) -> Any: ...

    def close(self) -> None: ...


class Browser(Protocol):
    """A browser of Playwright, or `e2e.harness.firefox.Firefox`."""

    def new_page(self) -> Tab: ...


class Gpu(KernelRunner):
    """A page with WebGPU; `run` executes the dispatches of an operator's lowering.

    Args:
        browser: opens the page; default: a separate Chromium (Playwright allows one driver a thread).

    Raises:
        LookupError: the browser finds no adapter.
    """

    def __init__(self, browser: Browser | None = None) -> None:
        self._large: dict[str, bytes] = {}
        handler = functools.partial(_Handler, self._large)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._playwright: Playwright | None = None
        if browser is None:
            self._playwright = sync_playwright().start()
            path = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "microsoft-edge"))), None)
            browser = self._playwright.chromium.launch(executable_path=path, args=FLAGS)
        self._page = browser.new_page()
        self._page.goto(f"http://127.0.0.1:{self._server.server_port}/")
        features = self._page.evaluate(_FEATURES)
        if features is None:
            self.close()
            raise LookupError("this browser finds no GPU adapter")
        self.target = Target(Limits(storage_buffers=10), frozenset(features))

    def close(self) -> None:
        """Close the page, the server, and a Chromium that this object started."""
        self._page.close()
        if self._playwright is not None:
            self._playwright.stop()
        self._server.shutdown()

    def execute(self, buffers: Sequence[Buffer], steps: Sequence[Step], reads: Sequence[int]) -> list[bytes]:
        """See `KernelRunner.execute`."""
        sent = [{"size": b.size, **self._sent(b.data)} for b in buffers]
        written = [
            {
                "source": s.source,
                "entry": s.entry,
                "bound": s.bound,
                "params": None if s.params is None else base64.b64encode(s.params).decode(),
                "grid": list(s.grid),
            }
            for s in steps
        ]
        answer = self._page.evaluate(_SCRIPT, {"buffers": sent, "steps": written, "reads": list(reads)})
        self._large.clear()
        assert "errors" not in answer, "\n".join(answer["errors"])
        return [base64.b64decode(text) for text in answer["outputs"]]

    def _sent(self, data: bytes) -> dict[str, str]:
        """Return how the page gets `data`: as text in the call, or if large by a request, ten times as fast."""
        if len(data) <= _SMALL:
            return {"text": base64.b64encode(data).decode()}
        path = f"/{len(self._large)}"
        self._large[path] = data
        return {"path": path}


class _Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, large: dict[str, bytes], *args: Any) -> None:
        self._files = large
        super().__init__(*args)

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self._files.get(self.path, b"<!doctype html><title>gpu</title>"))

    def log_message(self, *args: object) -> None:
        pass
