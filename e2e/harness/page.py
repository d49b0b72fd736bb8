"""Helpers for tests of the demo page: drawing, dropping a file, waiting for the prediction."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from onnx import TensorProto, helper
from playwright.sync_api import Page, ViewportSize, expect

PHONE: ViewportSize = {"width": 360, "height": 780}
DESKTOP: ViewportSize = {"width": 1280, "height": 800}

Strokes = Sequence[Sequence[tuple[float, float]]]

# Digits as drawn with a mouse, in none of the styles that tools/digit_strokes.py trains on.
DRAWN: dict[int, Strokes] = {
    0: [[(0.55, 0.2), (0.4, 0.25), (0.33, 0.45), (0.36, 0.7), (0.5, 0.82), (0.63, 0.72), (0.68, 0.45), (0.53, 0.2)]],
    1: [[(0.4, 0.33), (0.52, 0.2), (0.51, 0.85)]],
    2: [[(0.33, 0.35), (0.42, 0.2), (0.6, 0.22), (0.66, 0.38), (0.52, 0.6), (0.33, 0.82), (0.7, 0.8)]],
    3: [[(0.35, 0.22), (0.55, 0.18), (0.65, 0.32), (0.48, 0.48), (0.66, 0.6), (0.6, 0.8), (0.33, 0.82)]],
    4: [[(0.45, 0.2), (0.3, 0.6), (0.72, 0.6)], [(0.58, 0.4), (0.56, 0.88)]],
    5: [[(0.65, 0.2), (0.4, 0.2), (0.38, 0.46), (0.56, 0.45), (0.68, 0.6), (0.6, 0.8), (0.36, 0.8)]],
    6: [[(0.6, 0.18), (0.42, 0.4), (0.36, 0.66), (0.48, 0.82), (0.62, 0.72), (0.58, 0.58), (0.4, 0.62)]],
    7: [[(0.32, 0.22), (0.68, 0.22), (0.48, 0.85)]],
    8: [[(0.62, 0.28), (0.48, 0.2), (0.38, 0.32), (0.5, 0.46), (0.64, 0.64), (0.5, 0.82), (0.36, 0.68), (0.62, 0.3)]],
    9: [[(0.62, 0.3), (0.48, 0.22), (0.38, 0.36), (0.5, 0.5), (0.63, 0.34), (0.62, 0.6), (0.55, 0.85)]],
}


def open_page(page: Page, url: str) -> None:
    """Open the page and wait until its own drawing has been predicted."""
    page.goto(url)
    expect(page.locator("#loading-title")).to_have_text("Loaded")
    expect(page.locator(".bar.best .bar-digit")).to_have_text("3")


def go(page: Page, model: str) -> None:
    """Open a model like a link within the page, even if it is open already."""
    page.evaluate("model => { location.hash = ''; location.hash = `model=${model}`; }", model)


def draw(page: Page, strokes: Strokes) -> None:
    page.locator("#pad").scroll_into_view_if_needed()
    box = page.locator("#pad").bounding_box()
    assert box
    for stroke in strokes:
        for i, (x, y) in enumerate(stroke):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=1 if i == 0 else 4)
            if i == 0:
                page.mouse.down()
        page.mouse.up()


def wait_for(page: Page, condition: str) -> None:
    """Wait until this expression holds in the page, for a minute. The page's policy forbids Playwright's own way."""
    page.evaluate(
        f"""() => new Promise((resolve, reject) => {{
            const end = performance.now() + 60_000;
            const look = () => {{
                if ({condition}) resolve();
                else if (performance.now() > end) reject(new Error('never: ' + {condition!r}));
                else requestAnimationFrame(look);
            }};
            look();
        }})"""
    )


def answer(page: Page) -> int:
    """Return the digit with the longest bar, when the bars have stopped moving."""
    expect(page.locator(".bar.best")).to_have_count(1)
    # Moves of the pointer are handled with the next frame, and begin a run at once.
    page.evaluate("() => new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); })")
    expect(page.locator("#bars")).to_have_attribute("aria-busy", "false")
    return int(page.locator(".bar.best .bar-digit").inner_text())


def drop(page: Page, name: str, content: bytes, kind: str = "") -> None:
    """Drop a file of MIME type `kind` on the page, by the events of a drag."""
    page.evaluate(
        """([name, content, type]) => {
            const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([bytes], name, { type }));
            for (const event of ['dragenter', 'dragover', 'drop']) {
                document.querySelector('#model').dispatchEvent(
                    new DragEvent(event, { dataTransfer, bubbles: true, cancelable: true }));
            }
        }""",
        [name, base64.b64encode(content).decode(), kind],
    )


def has_sideways_scroll(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def small_model(op_type: str = "NonZero") -> bytes:
    """Return the model y = op(relu(x + x)), with x: float32 [rows, 4]."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["sum"], name="double"),
        helper.make_node("Relu", ["sum"], ["positive"], name="keep"),
        helper.make_node(op_type, ["positive"], ["y"], name="last"),
    ]
    output = TensorProto.INT64 if op_type == "NonZero" else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("y", output, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())
