"""Files larger than the memory that the browser says the device has are refused before they are downloaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from onnx import ModelProto, TensorProto, helper
from playwright.sync_api import Browser, Page, Worker

from e2e.harness.browser import guarded_page
from e2e.harness.chain import NBYTES, SIZE, model, weight
from e2e.harness.delivery import Delivery, Served
from e2e.harness.script import Script
from pyruntime.session.aot.compile_ahead import compile_model

LAYERS = 2

HAS = "(gib) => Object.defineProperty(navigator, 'deviceMemory', { value: gib, configurable: true })"


@pytest.fixture(scope="module")
def site_url(delivery: Delivery) -> str:
    return delivery.url


@contextmanager
def script_with_memory(browser: Browser, site_url: str, nbytes: int) -> Iterator[Script]:
    """A page whose device has so much memory, as it and all its workers see it."""
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        script = Script(page, guard)
        script.preload()
        for _ in range(500):  # a worker may run before it is listed
            if any(worker.url.endswith("downloader.js") for worker in page.workers):
                break
            page.wait_for_timeout(20)
        threads: list[Page | Worker] = [page, *page.workers]
        for thread in threads:
            thread.evaluate(HAS, nbytes / (1 << 30))
        yield script


def of_any_length(data: bytes) -> bytes:
    """The model for inputs of any number of rows: nothing is planned before the first run."""
    made = ModelProto.FromString(data)
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "rows"
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("where", ["Python", "plan", "external"])
def test_create__file_above_the_memory__refused_before_it_is_downloaded(
    where: str, browser: Browser, site_url: str, served: dict[str, Served], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = model(LAYERS, {0: ("w.bin", 0), 1: ("w.bin", NBYTES)} if where == "external" else None)
    large = "w.bin" if where == "external" else "model.onnx"
    served["/m/model.onnx"] = Served(data)
    served[f"/m/{large}"] = Served(bytes(LAYERS * NBYTES) if where == "external" else data, gate=1 << 16)
    plan = None
    if where == "plan":
        path = tmp_path_factory.mktemp("plan") / "model.onnx"
        path.write_bytes(data)
        plan = compile_model(path)
    with script_with_memory(browser, site_url, NBYTES) as script:
        found = script(
            """
            const plans = plan ? { plan: decode(plan) } : {};
            const files = external ? { externalData: [{ path: 'w.bin', data: '/m/w.bin' }] } : {};
            return failure(() => InferenceSession.create('/m/model.onnx', { ...plans, ...files }));
            """,
            plan=plan,
            external=where == "external",
        )
        script.guard.allow("Failed to load resource")
    assert found["name"] == "OutOfMemory"
    bytes_ = len(served[f"/m/{large}"].data)
    assert f"/m/{large} has {bytes_:,} bytes, and the device has {NBYTES:,} bytes of memory" in found["message"]
    assert sum(served[f"/m/{large}"].sent) <= 1 << 16


def test_create__file_of_unknown_length__refused_where_it_exceeds_the_memory(
    browser: Browser, site_url: str, served: dict[str, Served]
) -> None:
    served["/m/model.onnx"] = Served(model(LAYERS), chunked=True, gate=NBYTES + (2 << 20))
    with script_with_memory(browser, site_url, NBYTES) as script:
        found = script("return failure(() => InferenceSession.create('/m/model.onnx'));")
    assert found["name"] == "OutOfMemory"
    assert "/m/model.onnx has at least " in found["message"]
    assert f"the device has {NBYTES:,} bytes of memory" in found["message"]


@pytest.mark.parametrize("where", ["file", "external"])
def test_create__weights_above_the_memory__refused_when_the_graph_is_known(
    where: str, browser: Browser, site_url: str, served: dict[str, Served]
) -> None:
    """Each file of weights fits, and all of them do not; a file of the user's is not downloaded."""
    files = {layer: (f"w{layer}.bin", 0) for layer in range(LAYERS)}
    data = of_any_length(model(LAYERS, files if where == "external" else None))
    served["/m/model.onnx"] = Served(data)
    for layer, (name, _) in files.items():
        served[f"/m/{name}"] = Served(weight(layer), gate=1 << 20)
    with script_with_memory(browser, site_url, NBYTES + (1 << 20)) as script:
        found = script(
            "return failure(() => InferenceSession.create(model ? new Blob([decode(model)]) : '/m/model.onnx'));",
            model=data if where == "file" else None,
        )
    assert found["name"] == "OutOfMemory"
    assert f"the model's weights take {LAYERS * NBYTES:,} bytes on the GPU" in found["message"]
    assert all(sum(served[f"/m/{name}"].sent) <= 1 << 20 for name, _ in files.values())


def test_create__plan_above_the_memory__python_plans_or_refuses(
    browser: Browser, site_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("plan") / "model.onnx"
    path.write_bytes(model(LAYERS))
    with script_with_memory(browser, site_url, 2 * NBYTES - 1) as script:
        found = script(
            """
            const said = [];
            console.info = (text) => said.push(text);
            const create = () => InferenceSession.create(new Blob([decode(model)]), { plan: decode(plan) });
            const refused = await failure(create);
            return { said, refused };
            """,
            model=path.read_bytes(),
            plan=compile_model(path),
        )
    assert found["refused"]["name"] == "OutOfMemory"
    assert re.search(rf"the plan is not used.*the device has {2 * NBYTES - 1:,} bytes of memory", found["said"][0])


def test_run__what_it_needs_above_the_memory__refused_before_it_is_allocated(browser: Browser, site_url: str) -> None:
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "test", shapes[:1], shapes[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with script_with_memory(browser, site_url, NBYTES) as script:
        found = script(
            """
            const session = await InferenceSession.create(decode(model));
            const x = (length) => ({ x: new Tensor('float32', new Float32Array(length), [length]) });
            const { y } = await session.run(x(16));
            const refused = await failure(() => session.run(x(size * size)));
            await session.release();
            return [y.data.length, refused.name, refused.message];
            """,
            model=bytes(made.SerializeToString()),
            size=SIZE,
        )
    assert found[:2] == [16, "OutOfMemory"]
    assert f"`gpu_bytes` is {NBYTES:,}" in found[2]
