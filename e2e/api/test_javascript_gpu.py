"""Tensors that stay on the GPU, and profiles; with Python in a worker and in the page's thread.

`worker`: a tensor on the GPU is a handle. `page`: it is a GPUBuffer of `env.webgpu.device`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Browser, Page

from e2e.harness.browser import Guard, guarded_page
from e2e.harness.modes import DOUBLE, LATER, Mode, model_bytes, tensor
from e2e.harness.script import Script

SUM_AND_SIZE = model_bytes(
    [helper.make_node("Add", ["x", "x"], ["sum"]), helper.make_node("Mul", ["x", "x"], ["square"])],
    [tensor("x")],
    [tensor("sum"), tensor("square")],
)
STRING = model_bytes(
    [helper.make_node("Identity", ["x"], ["y"])], [tensor("x", TensorProto.STRING)], [tensor("y", TensorProto.STRING)]
)


INTEGERS = model_bytes(
    [helper.make_node("Add", ["s", "s"], ["t"])], [tensor("s", TensorProto.INT64)], [tensor("t", TensorProto.INT64)]
)
RESHAPED = model_bytes(
    [helper.make_node("Reshape", ["x", "t"], ["r"]), helper.make_node("Add", ["r", "r"], ["y"])],
    [tensor("x"), tensor("t", TensorProto.INT64, 2)],
    [tensor("y", TensorProto.FLOAT, "a", "b")],
)


@pytest.fixture(scope="module", params=["worker", "page"])
def shared_script(browser: Browser, site_url: str, request: pytest.FixtureRequest) -> Iterator[Mode]:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        yield Mode(page, guard, request.param)


IN_WORKER = pytest.mark.parametrize("shared_script", ["worker"], indirect=True)
IN_PAGE = pytest.mark.parametrize("shared_script", ["page"], indirect=True)


def test_mode__python__is_where_it_was_asked_to_be(script: Mode) -> None:
    script("await preload();")
    hosts = [worker for worker in script.page.workers if worker.url.endswith("/src/web/worker.js")]
    assert len(hosts) == (1 if script.name == "worker" else 0)


def test_output_location__gpu_buffer__feeds_the_next_session_and_is_fetched(script: Mode) -> None:
    found = script(
        """
        const [first, second] = await Promise.all([load(model, gpu), load(model)]);
        const { y } = await first.run({ x: floats(1, 2, 3) });
        const facts_ = [y.location, y.type, ...y.dims, y.size];
        const message = (await failure(() => y.data)).message;
        const next = await second.run({ x: y });
        const data = await y.getData();
        const after = [y.location, next.y.location];
        y.dispose();
        await Promise.all([first.release(), second.release()]);
        return { facts: facts_, message, next: [...next.y.data], data: [...data], after, end: y.location };
        """,
        model=DOUBLE,
    )
    assert found["facts"] == ["gpu-buffer", "float32", 3, 3]
    assert "getData()" in found["message"]
    assert (found["next"], found["data"]) == ([4, 8, 12], [2, 4, 6])
    assert (found["after"], found["end"]) == (["cpu", "cpu"], "none")


def test_run__every_input_is_on_the_gpu_and_one_is_a_shape__reads_it_back(script: Mode) -> None:
    found = script(
        """
        const [floating, integer, last] = await Promise.all([load(double, gpu), load(integers, gpu), load(model)]);
        const { y: x } = await floating.run({ x: floats(1, 2, 3, 4, 5, 6, 7, 8) });
        const { t } = await integer.run({ s: new Tensor('int64', [1n, 2n]) });
        const { y } = await last.run({ x, t });
        for (const tensor of [x, t]) tensor.dispose();
        await Promise.all([floating.release(), integer.release(), last.release()]);
        return { dims: [...y.dims], data: [...y.data] };
        """,
        double=DOUBLE,
        integers=INTEGERS,
        model=RESHAPED,
    )
    assert found == {"dims": [2, 4], "data": [4, 8, 12, 16, 20, 24, 28, 32]}


def test_output_location__by_name__holds_for_that_output(script: Mode) -> None:
    found = script(
        """
        const session = await load(model, { preferredOutputLocation: { square: 'gpu-buffer', sum: 'cpu' } });
        const { sum, square } = await session.run({ x: floats(3, 4) });
        const places = [sum.location, square.location];
        const only = await session.run({ x: floats(5) }, ['square']);
        const data = [...await square.getData(true), ...await only.square.getData(true)];
        await session.release();
        return { places, data };
        """,
        model=SUM_AND_SIZE,
    )
    assert found == {"places": ["cpu", "gpu-buffer"], "data": [9, 16, 25]}


@pytest.mark.parametrize(
    ("location", "word"),
    [("'texture'", "texture"), ("{ y: 'ml-tensor' }", "ml-")],
)
def test_output_location__that_is_none__is_refused(script: Mode, location: str, word: str) -> None:
    found = script(f"return failure(() => load(model, {{ preferredOutputLocation: {location} }}))", model=DOUBLE)
    assert found["name"] == "RangeError"
    assert word in found["message"]


def test_output_location__of_a_name_that_no_output_has__is_passed_over(script: Mode) -> None:
    found = script(
        """
        const session = await load(model, { preferredOutputLocation: { nope: 'gpu-buffer', square: 'gpu-buffer' } });
        const { sum, square } = await session.run({ x: floats(3, 4) });
        const data = [...await square.getData(true)];
        await session.release();
        return { places: [sum.location, square.location], data };
        """,
        model=SUM_AND_SIZE,
    )
    assert found == {"places": ["cpu", "cpu"], "data": [9, 16]}


WITH_EMPTY = model_bytes(
    [helper.make_node("Add", ["x", "x"], ["y"]), helper.make_node("Slice", ["y", "begin", "end"], ["none"])],
    [tensor("x"), tensor("begin", TensorProto.INT64, 1), tensor("end", TensorProto.INT64, 1)],
    [tensor("y"), tensor("none")],
)


def test_output_location__of_a_tensor_without_elements__is_cpu(script: Mode) -> None:
    """As in onnxruntime-web; no caller disposes of those. Runs after the first may do without Python."""
    found = script(
        """
        const session = await load(model, gpu);
        const zero = () => new Tensor('int64', [0n]);
        const made = [];
        for (let run = 0; run < 3; run += 1) {
          const { y, none } = await session.run({ x: floats(1, 2), begin: zero(), end: zero() });
          made.push([y.location, none.location, none.type, none.dims.length, none.dims[0], none.data.length]);
          y.dispose();
        }
        const empty = await session.run({ x: floats(), begin: zero(), end: zero() });
        made.push([empty.y.location, empty.none.location]);
        const { client } = await import('/src/web/api/client.js');
        const kept = env.worker ? await client().call('keptTensors', {}) : 0;
        const next = await session.run({ x: empty.y, begin: zero(), end: zero() });
        await session.release();
        return { made, kept, next: [next.y.location, ...next.y.dims] };
        """,
        model=WITH_EMPTY,
    )
    assert found["made"] == [["gpu-buffer", "cpu", "float32", 1, 0, 0]] * 3 + [["cpu", "cpu"]]
    assert found["kept"] == 0
    assert found["next"] == ["cpu", 0]


def test_output_location__of_what_the_gpu_cannot_hold__is_cpu(script: Mode) -> None:
    found = script(
        """
        const strings = await load(model, gpu);
        const { y } = await strings.run({ x: new Tensor(['a', 'b']) });
        const numpy = await load(double, { ...gpu, executionProviders: ['wasm'] });
        const other = await numpy.run({ x: floats(4) });
        await Promise.all([strings.release(), numpy.release()]);
        return [y.location, ...y.data, other.y.location, ...other.y.data];
        """,
        model=STRING,
        double=DOUBLE,
    )
    assert found == ["cpu", "a", "b", "cpu", 8]


def test_fetches__tensor_on_the_gpu__is_written_again_and_again(script: Mode) -> None:
    found = script(
        """
        const session = await load(model, gpu);
        const { y } = await session.run({ x: floats(1, 1) });
        const again = await session.run({ x: floats(5, 6) }, { y });
        const loop = await session.run({ x: y }, { y });
        const wrong = await failure(() => session.run({ x: floats(1) }, { y }));
        const data = [...await y.getData()];
        await session.release();
        return { same: again.y === y && loop.y === y, data, wrong: wrong.name };
        """,
        model=DOUBLE,
    )
    assert found["same"] is True
    assert found["data"] == [20, 24]
    assert found["wrong"] != "nothing was thrown"


def test_dispose__then_feed__says_so_and_the_session_goes_on(script: Mode) -> None:
    found = script(
        """
        const session = await load(model, gpu);
        const { y } = await session.run({ x: floats(1) });
        y.dispose();
        const error = await failure(() => session.run({ x: y }));
        const result = await session.run({ x: floats(2) });
        const data = [...await result.y.getData(true)];
        await session.release();
        return { error, data };
        """,
        model=DOUBLE,
    )
    assert "disposed" in found["error"]["message"]
    assert found["data"] == [4]


def test_dispose__after_the_last_session__leaves_nothing(page: Page, guard: Guard, site_url: str) -> None:
    page.goto(f"{site_url}e2e/blank.html")
    script = Script(page, guard)
    script.watch()
    value = script(
        LATER
        + """
        const session = await load(model, gpu);
        const { y } = await session.run({ x: floats(1, 2) });
        await session.release();
        const [value] = await y.getData();
        y.dispose();
        const { client } = await import('/src/web/api/client.js');
        while (await client().call('keptTensors', {})) await new Promise((resolve) => { setTimeout(resolve, 5); });
        return value;
        """,
        model=DOUBLE,
    )
    assert value == 2
    assert script.gpu_bytes() == {}


def test_forgotten_tensors__when_garbage_is_collected__give_their_memory_back(script: Mode) -> None:
    script(
        """
        globalThis.session = await load(model, gpu);
        globalThis.held = (await session.run({ x: floats(1, 2) })).y;
        const x = floats(...Array(1000).fill(1));
        for (let i = 0; i < 20; i++) await session.run({ x });
        """,
        model=DOUBLE,
    )
    cdp = script.page.context.new_cdp_session(script.page)
    for _ in range(100):  # what is told of collected objects comes later
        cdp.send("HeapProfiler.collectGarbage")
        left = script("""
            const { client } = await import('/src/web/api/client.js');
            return client().call('keptTensors', {});
            """)
        if left <= 2:
            break
        script.page.wait_for_timeout(20)
    assert left <= 2
    assert script("const data = await held.getData(); await session.release(); return [...data]") == [2, 4]


@IN_WORKER
def test_gpu_buffer__in_the_worker__names_the_way(script: Mode) -> None:
    found = script(
        """
        const session = await load(model, gpu);
        const { y } = await session.run({ x: floats(1) });
        const mine = Tensor.fromGpuBuffer({}, { dims: [1] });
        const failures = [await failure(() => y.gpuBuffer), await failure(() => env.webgpu.device),
                          await failure(() => session.run({ x: mine })),
                          await failure(() => session.run({ x: floats(1) }, { y: mine })),
                          await failure(() => load(model, { executionProviders: [{ name: 'webgpu', device: {} }] }))];
        await session.release();
        return failures.map(({ message }) => message);
        """,
        model=DOUBLE,
    )
    assert all("web/page.js" in message and "env.worker = false" in message for message in found), found


@IN_PAGE
def test_gpu_buffer__in_the_page__is_a_buffer_of_the_device(script: Mode) -> None:
    found = script(
        """
        const session = await load(model, gpu);
        const { y } = await session.run({ x: floats(1, 2, 3) });
        const device = await env.webgpu.device;
        const values = await read(device, y.gpuBuffer, 3);
        y.dispose();
        await session.release();
        return { values, kinds: [device instanceof GPUDevice, (await failure(() => y.gpuBuffer)).message] };
        """,
        model=DOUBLE,
    )
    assert found == {"values": [2, 4, 6], "kinds": [True, "the tensor is disposed"]}


@IN_PAGE
def test_from_gpu_buffer__fed_and_fetched__stays_the_pages_own(script: Mode) -> None:
    found = script(
        """
        const session = await load(model);
        const device = await env.webgpu.device;
        const [input, output] = [buffer(device, [1, 2, 3, 4, 5]), buffer(device, [0, 0, 0, 0, 0])];
        const x = Tensor.fromGpuBuffer(input, { dataType: 'float32', dims: [5] });
        let downloads = 0;
        const download = async () => { downloads += 1; return Float32Array.from(await read(device, output, 5)); };
        const y = Tensor.fromGpuBuffer(output, { dims: [5], download });
        const results = [];
        for (let i = 0; i < 3; i++) {
          const outputs = await session.run({ x }, { y });
          results.push(outputs.y === y, ...await read(device, output, 5));
          device.queue.writeBuffer(input, 0, new Float32Array([i, i, i, i, i]));
        }
        const data = [...await y.getData()];
        x.dispose();
        await session.release();
        return { results, data, downloads, input: await read(device, input, 5) };
        """,
        model=DOUBLE,
    )
    assert found["results"] == [True, 2, 4, 6, 8, 10, True, 0, 0, 0, 0, 0, True, 2, 2, 2, 2, 2]
    assert (found["data"], found["downloads"]) == ([2, 2, 2, 2, 2], 1)
    assert found["input"] == [2, 2, 2, 2, 2]


@IN_PAGE
@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("buffer(device, [1])", ["16 bytes", "4,096", "'x'"]),
        ("device.createBuffer({ size: 4096, usage: GPUBufferUsage.STORAGE })", ["'x'", "COPY_SRC"]),
        (
            "buffer(await (await navigator.gpu.requestAdapter()).requestDevice(), Array(1024).fill(0))",
            ["'x'", "device"],
        ),
    ],
)
def test_from_gpu_buffer__unusable_one__is_refused_with_what_it_needs(
    script: Mode, made: str, words: list[str]
) -> None:
    found = script(
        f"""
        const session = await load(model);
        const device = await env.webgpu.device;
        const x = Tensor.fromGpuBuffer({made}, {{ dims: [1024] }});
        const error = await failure(() => session.run({{ x }}));
        const {{ y }} = await session.run({{ x: floats(1) }});
        await session.release();
        return {{ error, after: [...y.data] }};
        """,
        model=DOUBLE,
    )
    assert found["error"]["name"] == "InvalidArgument", found
    assert all(word in found["error"]["message"] for word in words), found["error"]["message"]
    assert found["after"] == [2]


def test_device__set_before_the_first_session__is_computed_on(page: Page, guard: Guard, site_url: str) -> None:
    page.goto(site_url + "e2e/blank.html")
    found = Mode(page, guard, "page")(
        """
        const adapter = await navigator.gpu.requestAdapter();
        const device = await adapter.requestDevice({ label: 'mine' });
        env.webgpu.device = device;
        const session = await load(model, gpu);
        const { y } = await session.run({ x: Tensor.fromGpuBuffer(buffer(device, [21]), { dims: [1] }) });
        const same = (await env.webgpu.device) === device;
        const values = await read(device, y.gpuBuffer, 1);
        const providers = [{ name: 'webgpu', device }];
        const more = await load(model, { executionProviders: providers });
        const other = await (await navigator.gpu.requestAdapter()).requestDevice();
        const late = await failure(() => load(model, { executionProviders: [{ name: 'webgpu', device: other }] }));
        return { same, values, late: late.message };
        """,
        model=DOUBLE,
    )
    assert (found["same"], found["values"]) == (True, [42])
    assert "before the first session" in found["late"]


def test_profiling__from_create_to_end__has_the_nodes_of_every_run(script: Mode) -> None:
    found = script(
        """
        const session = await load(model, { enableProfiling: true });
        for (let i = 0; i < 3; i++) await session.run({ x: floats(1, 2) });
        const events = await session.endProfiling();
        await session.run({ x: floats(1, 2) });
        await session.run({ x: floats(1, 2) });
        const none = await session.endProfiling();
        await session.startProfiling();
        await session.run({ x: floats(1, 2) });
        const again = await session.endProfiling();
        await session.release();
        return { events, none, again };
        """,
        model=DOUBLE,
    )
    nodes = [event for event in found["events"] if event["cat"] == "Node"]
    assert [event["args"]["op_name"] for event in nodes] == ["Add"] * 3
    assert all(event["dur"] >= 0 and event["args"]["output_type_shape"] == [{"float": [2]}] for event in nodes)
    assert sum(event["name"] == "model_run" for event in found["events"]) == 3
    assert found["none"] == []
    assert sum(event["name"] == "model_run" for event in found["again"]) == 1
