"""Small models in memory, read while they arrive: what a page sees of it, and the buffer they come into."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Page

from e2e.harness.chain import ROW, RUN, expected, loaded, model, weight
from e2e.harness.delivery import Delivery, Served
from e2e.harness.script import Script

LAYERS = 2
"""19 MB."""

FOLLOW = """() => new Promise((resolve) => {
    globalThis.events = [];
    const onProgress = ({ phase, status, loaded, total }) => {
        events.push([phase, status, loaded === total]);
        if (loaded > 4 << 20) resolve();
    };
    globalThis.made = import('/src/web/pyruntime.js').then(({ InferenceSession }) => (
        InferenceSession.create('/m/model.onnx', { onProgress })));
    made.catch(() => {});
})"""


@pytest.fixture(scope="module")
def site_url(delivery: Delivery) -> str:
    return delivery.url


def test_create__model_held_back__phases_follow_each_other(script: Script, served: dict[str, Served]) -> None:
    file = served["/m/model.onnx"] = Served(model(LAYERS), gate=6 << 20)
    script.page.evaluate(FOLLOW)
    script.wait_until_idle()
    events = script.page.evaluate("events")
    assert ["model", "end", True] not in events and not any(phase == "parse" for phase, _, _ in events)
    file.opened.set()
    y = script(f"{RUN} const s = await made; const y = await run(s); await s.release(); return y;", x=ROW)
    np.testing.assert_array_equal(np.float32(y), expected(LAYERS))
    events = script.page.evaluate("events")
    ends = [phase for phase, status, _ in events if status == "end" and phase in ("model", "parse", "shaders")]
    assert ends == ["model", "parse", "shaders"]
    last = max(i for i, (phase, status, _) in enumerate(events) if (phase, status) == ("model", "progress"))
    assert events[last][2] and last < events.index(["parse", "begin", True])


@pytest.mark.parametrize("what", ["page", "text"])
def test_create__mistake_in_what_has_come__is_told_before_the_rest(
    script: Script, served: dict[str, Served], what: str
) -> None:
    data = model(LAYERS)
    bad = {"page": b"<!doctype html>" + bytes(len(data)), "text": data.replace(b"h1", b"\xff\xfe", 1)}[what]
    file = served["/m/model.onnx"] = Served(bad, gate=6 << 20)
    failed = script("return failure(() => InferenceSession.create('/m/model.onnx'))")
    assert failed["name"] == "InvalidProtobuf"
    assert {"page": "a web page", "text": "text that is not UTF-8"}[what] in failed["message"]
    assert file.left.wait(30), "the rest was not wanted any more"
    assert file.sent[0] <= 6 << 20


def test_create__connection_breaks_for_good__is_that_error(script: Script, served: dict[str, Served]) -> None:
    served["/m/model.onnx"] = Served(model(LAYERS), breaks=[6_000_000], etag=None)
    failed = script("return failure(() => InferenceSession.create('/m/model.onnx'))")
    assert failed["name"] == "Fail" and "the connection broke after " in failed["message"]
    assert f"of {len(model(LAYERS)):,} bytes" in failed["message"]


@pytest.mark.parametrize("breaks", [[], [7_000_000, 100]])
def test_create__weights_in_another_file_in_memory__arrive_as_well(
    script: Script, served: dict[str, Served], breaks: list[int | None]
) -> None:
    served["/m/model.onnx"] = Served(model(3, {0: ("data", 0), 2: ("data", len(weight(0)))}), breaks=[*breaks])
    served["/m/data"] = Served(weight(0) + weight(2), breaks=[*breaks])
    np.testing.assert_array_equal(loaded(script, "/m/model.onnx"), expected(3))


@pytest.mark.parametrize("noise", [2 << 20, 40 << 20])
def test_create__constants_without_elements__are_read(script: Script, served: dict[str, Served], noise: int) -> None:
    """Resize's roi, as exporters write it: of no bytes, in a file that is followed and in one that is read ahead."""
    weight = np.random.default_rng(0).standard_normal((1, noise // 4)).astype(np.float32)
    tensors = [
        numpy_helper.from_array(weight, "w"),
        numpy_helper.from_array(np.zeros(0, np.float32), "roi"),
        numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"),
        numpy_helper.from_array(np.zeros(0, np.int64), "scalar"),
    ]
    nodes = [
        helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0),
        helper.make_node("Reshape", ["s", "scalar"], ["t"]),
        helper.make_node("Resize", ["x", "roi", "scales"], ["r"], mode="nearest"),
        helper.make_node("Add", ["r", "t"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, d, d]) for n, d in (("x", 2), ("y", 4)))
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    served["/m/model.onnx"] = Served(made.SerializeToString())
    got = script(
        """const s = await InferenceSession.create('/m/model.onnx');
        const { y } = await s.run({ x: new Tensor(Float32Array.from([1, 2, 3, 4]), [1, 1, 2, 2]) });
        await s.release();
        return [...y.data];"""
    )
    expected_y = np.array([[1, 2], [3, 4]], np.float32).repeat(2, 0).repeat(2, 1).ravel() + weight.sum(dtype=np.float64)
    np.testing.assert_allclose(got, expected_y, rtol=1e-4, atol=0.05)


def buffer(page: Page, site_url: str, source: str) -> Any:
    page.goto(site_url + "e2e/blank.html")
    return page.evaluate(
        """async () => {
            const { ArrivingBuffer } = await import('/src/web/loading/buffer.js');
            const MB = 1 << 20;
            const part = (mb, n) => new Uint8Array(mb * MB).fill(n);
            const said = (promise) => promise.then(() => 'there', ({ message }) => message);
            const nextTurn = () => new Promise((done) => { setTimeout(done, 0, 'waits'); });
            const now = (promise) => Promise.race([said(promise), nextTurn()]);
        """
        + source
        + "}"
    )


def test_buffer__of_known_size__gives_what_has_come_and_wakes_in_steps(page: Page, site_url: str) -> None:
    got = buffer(
        page,
        site_url,
        """
        const file = new ArrivingBuffer('/m', 3 * MB);
        const early = [file.partNow(0, 1), await now(file.there(1))];
        file.came(part(0.5, 1));
        const half = [file.partNow(MB / 2 - 1, 1)[0], file.partNow(MB / 2, 1), await now(file.there(MB / 2)),
            await now(file.there(MB / 2 + 1))];
        const copy = new Uint8Array(2), copied = file.copyInto(MB - 1, copy);
        file.came(part(1, 2));
        await copied;
        const more = [await now(file.there(MB)), await now(file.there(3 * MB)), await now(file.complete())];
        file.came(part(1.5, 3));
        const all = [await now(file.there(3 * MB)), await now(file.complete()), file.isComplete];
        file.ended();
        const end = [await now(file.complete()), new Uint8Array(file.buffer)[3 * MB - 1], file.size];
        return [early, half, copy.join(), more, all, ...end];
        """,
    )
    assert got == [
        [None, "waits"],
        [1, None, "there", "waits"],
        "2,2",
        ["there", "waits", "waits"],
        ["there", "waits", False],
        "there",
        3,
        3 << 20,
    ]


@pytest.mark.parametrize(("announced", "misread"), [(2.5, True), (1.5, False), (1, True)])
def test_buffer__size_that_may_be_of_another_form__is_known_at_the_end(
    page: Page, site_url: str, announced: float, misread: bool
) -> None:
    """What was read of it until then is certain then."""
    got = buffer(
        page,
        site_url,
        f"""
        const file = new ArrivingBuffer('/m', {announced} * MB, false);
        file.came(part(0.5, 1));
        const before = await now(file.certain());
        file.came(part(1, 2));
        const more = await now(file.certain());
        file.ended();
        const end = await now(file.certain());
        return [before, more, end, file.size, file.wasMisread, file.buffer.byteLength];
        """,
    )
    assert got == ["waits", "waits", "there", 3 << 19, misread, 3 << 19]


def test_buffer__of_unknown_size__is_whole_at_the_end(page: Page, site_url: str) -> None:
    got = buffer(
        page,
        site_url,
        """
        const file = new ArrivingBuffer('/m', undefined);
        file.came(part(0.5, 1));
        file.came(part(1, 2));
        const before = [file.partNow(0, 1)[0], await now(file.complete())];
        file.ended();
        return [before, await now(file.complete()), file.buffer.byteLength, file.partNow(MB / 2 - 1, 2).join()];
        """,
    )
    assert got == [[1, "waits"], "there", 3 << 19, "1,2"]
