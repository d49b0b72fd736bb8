"""The page's second part: a picture or camera enlarged by the model, next to the browser's own scaling."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from playwright.sync_api import Locator, Page, expect

from e2e.harness.page import drop, open_page

MODEL = Path(__file__).parents[2] / "models" / "enlarge3.onnx"
SCALE = 3

Bytes = npt.NDArray[np.uint8]

# Red, green, blue of a canvas.
PIXELS = """canvas => {
    const { width, height } = canvas;
    const copy = Object.assign(document.createElement('canvas'), { width, height });
    const context = copy.getContext('2d', { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    const { data } = context.getImageData(0, 0, width, height);
    return { width, height, data: new Uint8Array(data.buffer).toBase64() };
}"""


def png(pixels: Bytes) -> bytes:
    """RGB pixels as a PNG file."""
    rows, columns, _ = pixels.shape
    raw = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def some_picture(rows: int = 12, columns: int = 16, seed: int = 0) -> Bytes:
    """Soft blots with an edge."""
    y, x = np.mgrid[0:rows, 0:columns] / max(rows, columns)
    phases = np.random.default_rng(seed).uniform(0, 6, 3)
    values = np.stack([np.sin(7 * x + p) * np.cos(5 * y + p) for p in phases], 2)
    bytes_: Bytes = ((values + (x > 0.5)[..., None] > 0.4) * 90 + 60 + 60 * values).clip(0, 255).astype(np.uint8)
    return bytes_


def expected(pixels: Bytes) -> Bytes:
    """What onnxruntime makes of them."""
    session = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    tensor = pixels.astype(np.float32).transpose(2, 0, 1)[None] / 255
    (enlarged,) = session.run(None, {"picture": tensor})
    return np.asarray(np.rint(enlarged[0].transpose(1, 2, 0) * 255), np.uint8)


def shown(canvas: Locator) -> Bytes:
    found = canvas.evaluate(PIXELS)
    data = base64.b64decode(found["data"])
    pixels: Bytes = np.frombuffer(data, np.uint8).reshape(found["height"], found["width"], 4)
    return pixels[..., :3]


def differ(a: Bytes, b: Bytes) -> int:
    return int(np.abs(a.astype(int) - b.astype(int)).max())


@pytest.fixture
def picture(ready_page: Page) -> Iterator[Page]:
    """The page with a small picture of the visitor's, enlarged."""
    ready_page.locator("#stage").scroll_into_view_if_needed()
    drop(ready_page, "blots.png", png(some_picture()), "image/png")
    expect(ready_page.locator("#picture-name")).to_have_text("blots.png, 16 × 12")
    expect(ready_page.locator("#picture-facts")).to_contain_text("16 × 12 to 48 × 36")
    expect(ready_page.locator("#stage")).to_have_attribute("data-state", "ready")
    yield ready_page
    expect(ready_page.locator("#picture-error")).to_be_empty()


def test_picture__dropped__is_what_onnxruntime_makes_of_it(picture: Page) -> None:
    expect(picture.locator("#stage")).to_have_attribute("data-state", "ready")
    after, before = shown(picture.locator("#after")), shown(picture.locator("#before"))
    assert after.shape == before.shape == (36, 48, 3)
    assert differ(after, expected(some_picture())) <= 1
    assert differ(after, before) > 8


def test_picture__section_comes_into_view__a_sample_runs_at_once(page: Page, site_url: str) -> None:
    page.goto(site_url)
    expect(page.locator("#loading-title")).to_have_text("Loaded")
    page.locator("#stage").scroll_into_view_if_needed()
    expect(page.locator("#stage")).to_have_attribute("data-state", "ready")
    expect(page.locator("#picture-name")).to_have_text("Cat, 150 × 100")
    assert re.match(r"96 × 72 to 288 × 216 in [\d.]+ m?s", page.locator("#picture-facts").inner_text())
    earlier = shown(page.locator("#after"))
    page.locator("#map").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#map")).to_have_attribute("aria-label", re.compile("35 from the left, 14 from the top"))
    for _ in range(100):
        if differ(shown(page.locator("#after")), earlier) > 8:
            break
        page.wait_for_timeout(100)
    else:
        pytest.fail("the frame was moved and the enlarged piece did not follow")
    assert differ(shown(page.locator("#after"))[:, :200], earlier[:, 24:224]) < 60


def test_split__by_keyboard_and_pointer__moves_the_line(picture: Page) -> None:
    split, stage = picture.locator("#split"), picture.locator("#stage")
    split.focus()
    picture.keyboard.press("Home")
    assert stage.evaluate("stage => stage.style.getPropertyValue('--split')") == "0%"
    picture.keyboard.press("ArrowRight")
    assert split.get_attribute("aria-valuetext") == "1 % from the left: browser, then model"
    box = stage.bounding_box()
    assert box
    picture.mouse.click(box["x"] + box["width"] * 0.75, box["y"] + 20)
    assert 72 <= int(split.input_value()) <= 78
    assert (
        picture.locator("#after")
        .evaluate("canvas => getComputedStyle(canvas).clipPath")
        .startswith("inset(0px 0px 0px 7")
    )


def test_picture__model_takes_long__browsers_picture_stands_alone_meanwhile(page: Page, site_url: str) -> None:
    open_page(page, f"{site_url}src/")  # its modules can be reached
    page.locator("#stage").scroll_into_view_if_needed()
    expect(page.locator("#stage")).to_have_attribute("data-state", "ready")
    script = """async () => {
        const { Enlarger } = await import('/src/web/ui/app/picture/enlarger.js');
        const { enlarge } = Enlarger.prototype;
        Enlarger.prototype.enlarge = async function (pixels) {
            await new Promise((resolve) => { globalThis.goOn = resolve; });
            Enlarger.prototype.enlarge = enlarge;
            return enlarge.call(this, pixels);
        };
    }"""
    page.evaluate(script)
    drop(page, "other.png", png(some_picture(seed=3)), "image/png")
    expect(page.locator("#stage")).to_have_attribute("data-state", "working")
    expect(page.locator("#after")).to_be_hidden()
    page.evaluate("goOn()")
    expect(page.locator("#stage")).to_have_attribute("data-state", "ready")
    assert differ(shown(page.locator("#after")), expected(some_picture(seed=3))) <= 1


def test_picture__pasted__is_enlarged(picture: Page) -> None:
    picture.evaluate(
        """bytes => {
            const clipboardData = new DataTransfer();
            clipboardData.items.add(new File([new Uint8Array(bytes)], 'image.png', { type: 'image/png' }));
            document.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
        }""",
        list(png(some_picture(9, 12, seed=1))),
    )
    expect(picture.locator("#picture-name")).to_have_text("Pasted picture, 12 × 9")
    expect(picture.locator("#picture-facts")).to_contain_text("12 × 9 to 36 × 27")


def test_picture__whole__is_saved_as_png(picture: Page) -> None:
    picture.get_by_role("button", name="Enlarge all of it").click()
    link = picture.get_by_role("link", name="Save 48 × 36 PNG")
    expect(link).to_be_visible()
    with picture.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == "enlarged.png"
    assert Path(download.value.path()).read_bytes()[16:24] == struct.pack(">II", 48, 36)


def test_picture__whole_then_cancelled__says_so(picture: Page) -> None:
    drop(picture, "large.png", png(some_picture(600, 800)), "image/png")
    expect(picture.locator("#picture-name")).to_have_text("large.png, 800 × 600")
    picture.get_by_role("button", name="Enlarge all of it").click()
    expect(picture.locator("#enlarge-progress")).to_contain_text(re.compile(r"Tile \d+ of \d\d"))
    picture.locator("#enlarge-cancel").click()
    expect(picture.locator("#enlarge-progress")).to_have_text("Cancelled.")
    expect(picture.get_by_role("button", name="Enlarge all of it")).to_be_visible()


def test_tiles__of_a_picture__leave_no_seams(picture: Page) -> None:
    pixels = some_picture(45, 52, seed=2)
    tiled = picture.evaluate(
        """async ([rows, columns, data]) => {
            const { Enlarger } = await import('./src/web/ui/app/picture/enlarger.js');
            const enlarger = await Enlarger.load();
            const small = Object.assign(document.createElement('canvas'), { width: columns, height: rows });
            const context = small.getContext('2d', { willReadFrequently: true });
            const image = new ImageData(columns, rows);
            image.data.set(data);
            context.putImageData(image, 0, 0);
            const steps = [];
            const canvas = await enlarger.enlargeAll(context, { tile: 32, onProgress: (done) => steps.push(done) });
            await enlarger.release();
            const { data: enlarged } = canvas.getContext('2d').getImageData(0, 0, 3 * columns, 3 * rows);
            return { steps, data: new Uint8Array(enlarged.buffer).toBase64() };
        }""",
        [45, 52, np.dstack([pixels, np.full((45, 52, 1), 255, np.uint8)]).ravel().tolist()],
    )
    assert tiled["steps"] == list(range(len(tiled["steps"])))
    assert len(tiled["steps"]) > 6
    enlarged = np.frombuffer(base64.b64decode(tiled["data"]), np.uint8).reshape(135, 156, 4)
    assert differ(enlarged[..., :3], expected(pixels)) <= 1


def test_tiles__of_any_side__cover_it_once_with_margins(ready_page: Page) -> None:
    script = """async () => {
        const { cuts, MARGIN } = await import('./src/web/ui/app/picture/enlarger.js');
        const sides = Array.from({ length: 300 }, (_, i) => i + 1);
        return [MARGIN, sides.map((side) => cuts(side, 64))];
    }"""
    margin, all_cuts = ready_page.evaluate(script)
    for side, pieces in enumerate(all_cuts, 1):
        assert [piece["from"] for piece in pieces] == [0, *(piece["to"] for piece in pieces[:-1])]
        assert pieces[-1]["to"] == side
        size = min(side, 64)
        for piece in pieces:
            assert 0 <= piece["begin"] <= side - size
            assert piece["begin"] == 0 or piece["from"] - piece["begin"] >= margin
            assert piece["begin"] + size == side or piece["begin"] + size - piece["to"] >= margin


def test_camera__its_frames__are_enlarged_until_it_is_stopped(picture: Page) -> None:
    picture.evaluate(
        """() => {
            const canvas = Object.assign(document.createElement('canvas'), { width: 16, height: 12 });
            const context = canvas.getContext('2d');
            let grey = 0;
            const draw = () => {
                grey = (grey + 40) % 256;
                context.fillStyle = `rgb(${grey} ${grey} ${grey})`;
                context.fillRect(0, 0, 16, 12);
            };
            draw();
            const timer = setInterval(draw, 100);
            navigator.mediaDevices.getUserMedia = async () => {
                globalThis.cameraStream = canvas.captureStream(10);
                return cameraStream;
            };
        }"""
    )
    camera = picture.locator("#camera")
    camera.click()
    expect(camera).to_have_attribute("aria-pressed", "true")
    expect(picture.locator("#picture-name")).to_contain_text("Camera")
    expect(picture.locator("#picture-facts")).to_contain_text("a second")
    seen = set()
    for _ in range(60):
        seen.add(int(shown(picture.locator("#after"))[18, 24, 0]))
        if len(seen) > 2:
            break
        picture.wait_for_timeout(100)
    assert len(seen) > 2, "the camera's pictures change and the enlarged ones do not"
    camera.click()
    expect(camera).to_have_attribute("aria-pressed", "false")
    assert picture.evaluate("cameraStream.getTracks().every(({ readyState }) => readyState === 'ended')")


def test_camera__refused__says_what_to_do(ready_page: Page) -> None:
    ready_page.evaluate(
        """() => {
            navigator.mediaDevices.getUserMedia = async () => {
                throw new DOMException('Permission denied', 'NotAllowedError');
            };
        }"""
    )
    ready_page.locator("#camera").click()
    expect(ready_page.locator("#picture-error")).to_contain_text("Allow the camera")
    drop(ready_page, "broken.png", b"no picture", "image/png")
    expect(ready_page.locator("#picture-error")).to_contain_text("cannot be read")
    drop(ready_page, "blots.png", png(some_picture()), "image/png")
    expect(ready_page.locator("#picture-error")).to_be_empty()
