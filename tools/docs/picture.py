"""docs/images/page.webp, a short animation of the page on the built site: `python -m tools.docs.picture`.

Run it after a visual change of the page. It needs `dist/` and a Chromium, as `dev.py demo` leaves them.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from tools.devkit.chromium import ensure_chromium
from tools.devkit.server import Server
from tools.devkit.shell import DIST, ROOT

TARGET = ROOT / "docs" / "images" / "page.webp"
SIZE = (1120, 700)
SHOWN = (840, 525)
STROKES = (
    ((0.33, 0.35), (0.42, 0.2), (0.6, 0.22), (0.66, 0.38), (0.52, 0.6), (0.33, 0.82), (0.7, 0.8)),
    ((0.55, 0.2), (0.4, 0.25), (0.33, 0.45), (0.36, 0.7), (0.5, 0.82), (0.63, 0.72), (0.68, 0.45), (0.53, 0.2)),
)
"""A two and a zero, in shares of the pad."""
FLAGS = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan")


def frame(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize(SHOWN, Image.Resampling.LANCZOS)


def film(page: Page) -> list[tuple[Image.Image, int]]:
    """Return frames with their durations in milliseconds: digits are drawn, and the bars follow."""
    frames = [(frame(page), 700)]
    for points in STROKES:
        page.locator("#pad-clear").click()
        box = page.locator("#pad").bounding_box()
        assert box
        for number, (x, y) in enumerate(points):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=1 if number == 0 else 4)
            if number == 0:
                page.mouse.down()
            frames.append((frame(page), 120))
        page.mouse.up()
        expect(page.locator(".bar.best")).to_have_count(1)
        frames.append((frame(page), 1500))
    return frames


def main() -> int:
    """Write the animation."""
    executable = ensure_chromium(Path(sys.executable))
    with Server({"/": DIST}) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=[*FLAGS])
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.goto(server.url)
        expect(page.locator("#loading-title")).to_have_text("Loaded", timeout=120_000)
        expect(page.locator(".bar.best .bar-digit")).to_have_text("3")
        expect(page.locator("#python-state")).to_contain_text("Python is ready", timeout=120_000)
        frames = film(page)
        browser.close()
    first, *rest = [image for image, _ in frames]
    first.save(
        TARGET, save_all=True, append_images=rest, duration=[time for _, time in frames], loop=0, quality=60, method=6
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
