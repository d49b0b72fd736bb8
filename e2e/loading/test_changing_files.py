"""Files that change on their server while they are read: numbers of one of them, or a clear error.

The pages are of a context without routes, as these switch the browser's HTTP cache off.
"""

from __future__ import annotations

import base64
import email.utils
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Browser, BrowserContext, Page

from e2e.conftest import mounts
from e2e.harness.browser import READY_MS
from e2e.harness.delivery import Answer, Delivery, Scripted
from pyruntime.session.aot.compile_ahead import compile_model

ROWS, COLUMNS = 300, 256
X = np.random.default_rng(0).integers(-2, 3, (1, ROWS)).astype(np.float32)

VISIT = """async ({ x, cachePlan }) => {
  const { InferenceSession, Tensor } = await import('/src/web/pyruntime.js');
  const data = new Float32Array(Uint8Array.from(atob(x), (letter) => letter.charCodeAt(0)).buffer);
  const session = await InferenceSession.create('/m/model.onnx', { cachePlan });
  const { y } = await session.run({ x: new Tensor('float32', data, [1, data.length]) });
  await session.release();
  return [...y.data];
}"""


def weights(seed: int, columns: int = COLUMNS) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-3, 4, (ROWS, columns)).astype(np.float32)


def model(seed: int, operator: str = "Identity", external: bool = False, columns: int = COLUMNS) -> tuple[bytes, bytes]:
    """y = operator(x W), and the file of W where that is external."""
    tensor = numpy_helper.from_array(weights(seed, columns), "w")
    data = tensor.raw_data
    if external:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "model.onnx.data"), ("offset", "0"), ("length", str(len(data)))):
            tensor.external_data.add(key=key, value=value)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node(operator, ["m"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in (("x", ROWS), ("y", columns)))
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [tensor]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    return made.SerializeToString(), data


@dataclass
class Changing:
    """A file that is replaced after the first answer, which breaks off at 60 %.

    Attributes:
        tags: their ETags; '' is none.
        honours: whether If-Range is looked at. ranges: whether Range is.
        asked: the Range header ('' where there is none) of each request.
    """

    old: bytes
    new: bytes
    tags: tuple[str, str] = ('"old"', '"new"')
    honours: bool = True
    ranges: bool = True
    breaks: bool = True
    asked: list[str] = field(default_factory=list)

    def __call__(self, headers: Any) -> Answer:
        first = not self.asked
        body, tag = (self.old, self.tags[0]) if first else (self.new, self.tags[1])
        self.asked.append(headers.get("Range", ""))
        part = re.match(r"bytes=(\d+)-(\d*)$", headers.get("Range", "")) if self.ranges else None
        if part and self.honours and headers.get("If-Range", tag) != tag:
            part = None
        begin = int(part[1]) if part else 0
        end = int(part[2]) + 1 if part and part[2] else len(body)
        named = {"ETag": tag} if tag else {}
        if part and begin >= len(body):
            return Answer(416, b"", named)
        if part:
            named["Content-Range"] = f"bytes {begin}-{end - 1}/{len(body)}"
        cut = len(body) * 6 // 10 if first and self.breaks else None
        return Answer(206 if part else 200, body[begin:end], named, cut)


@pytest.fixture
def server(site: Path) -> Iterator[Delivery]:
    with Delivery(mounts(site)) as delivery:
        yield delivery


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(service_workers="block")
    made.set_default_timeout(READY_MS)
    yield made
    made.close()


def opened(context: BrowserContext, server: Delivery) -> Page:
    page = context.new_page()
    page.goto(server.url + "e2e/blank.html")
    return page


def visit(context: BrowserContext, server: Delivery, keep: bool = False) -> np.ndarray[Any, Any]:
    """The numbers of the model in a page of its own."""
    page = opened(context, server)
    found = page.evaluate(VISIT, {"x": base64.b64encode(X.tobytes()).decode(), "cachePlan": keep})
    page.close()
    return np.asarray(found, np.float32)


def product(seed: int, columns: int = COLUMNS) -> np.ndarray[Any, Any]:
    y: np.ndarray[Any, Any] = (X @ weights(seed, columns)).ravel()
    return y


@pytest.mark.parametrize("honours", [True, False])
@pytest.mark.parametrize("ranges", [True, False])
def test_create__replaced_after_a_break__is_the_new_one(
    context: BrowserContext, server: Delivery, honours: bool, ranges: bool
) -> None:
    file = Changing(model(1)[0], model(2)[0], honours=honours, ranges=ranges)
    server.scripted["/m/model.onnx"] = Scripted(file)
    np.testing.assert_array_equal(visit(context, server), product(2))
    assert 2 <= len(file.asked) <= 4
    np.testing.assert_array_equal(visit(context, server), product(2))


@pytest.mark.parametrize("honours", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_create__page_left_and_file_replaced__next_visit_has_no_bytes_of_both(
    context: BrowserContext, server: Delivery, honours: bool, keep: bool
) -> None:
    old, new = model(1)[0], model(2)[0]
    if keep:
        server.scripted["/m/model.onnx"] = Scripted(Changing(old, old, ('"old"', '"old"'), breaks=False))
        np.testing.assert_array_equal(visit(context, server, True), product(1))
    file = Changing(old, new, honours=honours)
    server.scripted["/m/model.onnx"] = Scripted(file, holds=True)
    page = opened(context, server)
    page.evaluate(
        """async (nbytes) => {
          const { body } = await fetch('/m/model.onnx', { cache: 'reload' });
          const reader = body.getReader();
          for (let come = 0; come < nbytes;) come += (await reader.read()).value.length;
        }""",
        len(old) * 6 // 10,
    )
    page.close()
    np.testing.assert_array_equal(visit(context, server, keep), product(2))
    assert 2 <= len(file.asked) <= 6  # with a probe of the browser's, and a HEAD
    np.testing.assert_array_equal(visit(context, server, keep), product(2))


def test_create__breaks_and_is_the_same__goes_on_and_is_not_read_anew(
    context: BrowserContext, server: Delivery
) -> None:
    data = model(1)[0]
    file = Changing(data, data, ('"old"', '"old"'))
    server.scripted["/m/model.onnx"] = Scripted(file)
    np.testing.assert_array_equal(visit(context, server), product(1))
    assert len(file.asked) == 2 and file.asked[1].startswith("bytes=")


@pytest.mark.parametrize("columns", [2 * COLUMNS, COLUMNS - 1, COLUMNS // 4], ids=["grows", "shrinks", "ends before"])
def test_create__another_size_under_the_same_tag__is_read_anew_once(
    context: BrowserContext, server: Delivery, columns: int
) -> None:
    file = Changing(model(1)[0], model(2, columns=columns)[0], ('"one"', '"one"'))
    server.scripted["/m/model.onnx"] = Scripted(file)
    np.testing.assert_array_equal(visit(context, server), product(2, columns))
    assert 2 <= len(file.asked) <= 4


@pytest.mark.parametrize("replaced", ["data", "graph"])
def test_create__one_of_two_files_replaced_after_a_break__are_of_one_model(
    context: BrowserContext, server: Delivery, replaced: str
) -> None:
    """Both are read anew, as the other one may belong to the old one."""
    old, new = model(1, "Neg", external=True), model(2, "Abs", external=True)
    broken = Changing(old[replaced == "data"], new[replaced == "data"])

    def other(headers: Any) -> Answer:
        asked.append(headers.get("Range", ""))
        files, tag = (new, '"new"') if broken.asked else (old, '"old"')
        return Answer(200, files[replaced != "data"], {"ETag": tag})

    asked: list[str] = []
    names = {"graph": "/m/model.onnx", "data": "/m/model.onnx.data"}
    server.scripted[names.pop(replaced)] = Scripted(broken)
    server.scripted[names.popitem()[1]] = Scripted(other)
    np.testing.assert_array_equal(visit(context, server), abs(product(2)))
    assert len(broken.asked) <= 4 and len(asked) <= 3


PLANNED = """async ({ x, plan }) => {
  await import('/e2e/watch.js');
  const { InferenceSession, Tensor } = await import('/src/web/pyruntime.js');
  const decode = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const data = new Float32Array(decode(x).buffer);
  const session = await InferenceSession.create('/m/model.onnx', { plan: decode(plan) });
  const { y } = await session.run({ x: new Tensor('float32', data, [1, data.length]) });
  const { weights, peak } = (await session.summary()).memory;
  const { staging, ...there } = gpuBytes();
  await session.release();
  return { y: [...y.data], planned: weights + peak, there: Object.values(there).reduce((sum, size) => sum + size) };
}"""


def test_plan__replaced_after_a_break__constants_are_computed_of_the_new_one(
    context: BrowserContext, server: Delivery, tmp_path: Path
) -> None:
    """Weights of 11 MB, some of which have been computed with where the file breaks off."""
    columns = 1024

    def negated(seed: int) -> bytes:
        stored = [numpy_helper.from_array(weights(seed + i, columns), f"w{i}") for i in range(9)]
        nodes = [helper.make_node("Neg", [f"w{i}"], [f"n{i}"]) for i in range(9)]
        nodes += [helper.make_node("MatMul", ["x", f"n{i}"], [f"m{i}"]) for i in range(9)]
        nodes.append(helper.make_node("Sum", [f"m{i}" for i in range(9)], ["y"]))
        x, y = (
            helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, size]) for n, size in (("x", ROWS), ("y", columns))
        )
        graph = helper.make_graph(nodes, "g", [x], [y], stored)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return bytes(made.SerializeToString())

    path = tmp_path / "model.onnx"
    path.write_bytes(negated(100))
    file = Changing(negated(0), negated(100))
    server.scripted["/m/model.onnx"] = Scripted(file)
    page = opened(context, server)
    encoded = {
        name: base64.b64encode(data).decode() for name, data in (("x", X.tobytes()), ("plan", compile_model(path)))
    }
    found = page.evaluate(PLANNED, encoded)
    assert not any(worker.url.endswith("/worker.js") for worker in page.workers)
    assert len(file.asked) >= 2
    np.testing.assert_array_equal(np.float32(found["y"]), -sum(product(100 + i, columns) for i in range(9)))
    assert abs(found["there"] - found["planned"]) <= 0.01 * found["planned"]


def test_fetch_all__replaced_after_a_break__is_the_new_one(context: BrowserContext, server: Delivery) -> None:
    """What reads tokenizers, configurations, compiled plans and the runtime's wheel."""
    file = Changing(b"1" * 300_000, b"2" * 300_001, honours=False)
    server.scripted["/m/tokenizer.json"] = Scripted(file)
    page = opened(context, server)
    for _ in range(2):
        text = page.evaluate(
            """async () => {
                const { fetchAll } = await import('/src/web/net/stream.js');
                return (await fetchAll('/m/tokenizer.json')).text();
            }"""
        )
        assert text == "2" * 300_001
    assert len(file.asked) <= 4


def test_create__grows_with_each_request__ends_with_an_error_that_says_so(
    context: BrowserContext, server: Delivery
) -> None:
    data = model(1)[0]
    asked: list[str] = []

    def grown(headers: Any) -> Answer:
        body = data + b"\0" * 4096 * len(asked)
        part = re.match(r"bytes=(\d+)-", headers.get("Range", ""))
        begin = int(part[1]) if part else 0
        asked.append(headers.get("Range", ""))
        named = {"ETag": '"one"'}
        if part:
            named["Content-Range"] = f"bytes {begin}-{len(body) - 1}/{len(body)}"
        return Answer(206 if part else 200, body[begin:], named, len(body) * 6 // 10 - begin)

    server.scripted["/m/model.onnx"] = Scripted(grown)
    with pytest.raises(Exception, match="changed while it was read"):
        visit(context, server)
    assert len(asked) <= 6


@pytest.mark.parametrize("tags", [("", ""), ('W/"old"', 'W/"new"')])
def test_create__breaks_and_nothing_tells_the_file__is_an_error_and_then_the_new_one(
    context: BrowserContext, server: Delivery, tags: tuple[str, str]
) -> None:
    file = Changing(model(1)[0], model(2)[0], tags)
    server.scripted["/m/model.onnx"] = Scripted(file)
    with pytest.raises(Exception, match="neither ETag nor Last-Modified"):
        visit(context, server)
    assert len(file.asked) == 1
    np.testing.assert_array_equal(visit(context, server), product(2))


@pytest.mark.parametrize("keep", [False, True])
def test_create__graph_and_weights_replaced__are_of_one_model(
    context: BrowserContext, server: Delivery, keep: bool
) -> None:
    """The graph is small, and fresh by what browsers take for that; its weights are not kept."""
    state: dict[str, Any] = {"files": model(1, "Neg", external=True), "tag": '"old"'}
    log: list[tuple[str, str]] = []

    def give(name: str) -> Any:
        def answer(headers: Any) -> Answer:
            log.append((name, headers.get("If-None-Match", "")))
            body = state["files"][name == "data"]
            named = {"ETag": state["tag"], "Cache-Control": "no-store"}
            if name == "graph":
                named["Last-Modified"] = email.utils.formatdate(time.time() - 30 * 86400, usegmt=True)
                del named["Cache-Control"]
                if headers.get("If-None-Match") == state["tag"]:
                    return Answer(304, b"", named)
            return Answer(200, body, named)

        return answer

    server.scripted["/m/model.onnx"] = Scripted(give("graph"))
    server.scripted["/m/model.onnx.data"] = Scripted(give("data"))
    np.testing.assert_array_equal(visit(context, server, keep), -product(1))
    assert [name for name, _ in log] == ["graph", "data"]
    log.clear()
    if not keep:
        np.testing.assert_array_equal(visit(context, server, keep), -product(1))
        assert sorted(log) == [("data", ""), ("graph", '"old"')]  # asked again, and not sent again
        log.clear()
    state.update(files=model(2, "Abs", external=True), tag='"new"')
    np.testing.assert_array_equal(visit(context, server, keep), abs(product(2)))
    assert len(log) <= 6
