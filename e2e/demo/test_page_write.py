"""The page's language model: text that flows and can be stopped, what was considered, folders of the visitor's."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from e2e.demo.test_page_access import AXE
from e2e.harness.browser import Guard
from e2e.harness.page import DESKTOP, PHONE, has_sideways_scroll
from tools.devkit import fetch, pins
from tools.devkit.server import Server
from tools.devkit.shell import ROOT

FOLDER = ROOT / "models" / "austen"
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def talking_folder(context: int | None = None) -> dict[str, bytes]:
    """The page's model with a chat template, so that the page takes it for one that talks. Files by path.

    `context`: tokens that it says it can look back at; it does not end an answer then.
    """
    files = {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in FOLDER.rglob("*") if path.is_file()}
    config = json.loads(files["tokenizer_config.json"])
    files["tokenizer_config.json"] = json.dumps({**config, "chat_template": TEMPLATE}).encode()
    choices = json.loads(files["generation_config.json"])
    files["generation_config.json"] = json.dumps({**choices, "do_sample": False}).encode()
    if context:
        model = json.loads(files["config.json"])
        files["config.json"] = json.dumps({**model, "max_position_embeddings": context}).encode()
        files["generation_config.json"] = json.dumps({"do_sample": False, "eos_token_id": [4095]}).encode()
    return files


def write_folder(folder: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


@pytest.fixture
def section(ready_page: Page, shared_page: tuple[Page, Guard]) -> Iterator[Locator]:
    """The part of the page that writes. It asks the server for files that a folder may have."""
    shared_page[1].allow("404")
    yield ready_page.locator("#write")
    ready_page.set_viewport_size(DESKTOP)
    ready_page.emulate_media(color_scheme="light")


def tokens_of(section: Locator) -> str:
    """What was written, without the prompt."""
    return "".join(section.locator("#write-text .token").all_text_contents())


def write(section: Locator, *, tokens: int = 12, seed: int = 1, temperature: str = "0.7") -> str:
    section.get_by_label("Tokens at most").fill(str(tokens))
    section.get_by_label("Seed", exact=True).fill(str(seed))
    section.get_by_label("Temperature").fill(temperature)
    section.get_by_role("button", name="Write", exact=True).click()
    expect(section.locator("#write-status")).to_contain_text("Written: ")
    expect(section.get_by_role("button", name="Write", exact=True)).to_be_visible()
    return tokens_of(section)


def test_write__prompt_and_seed__repeats_and_another_seed_differs(section: Locator) -> None:
    first = write(section, seed=3)
    expect(section.locator("#write-facts")).to_contain_text(
        re.compile("12 tokens, .* tokens a second; the first after")
    )
    expect(section.locator("#write-spent dt")).to_have_count(4)
    assert first
    assert write(section, seed=3) == first
    section.get_by_role("button", name="Another, with the next seed").click()
    expect(section.get_by_label("Seed", exact=True)).to_have_value("4")
    expect(section.locator("#write-status")).to_contain_text("Written: ")
    assert tokens_of(section) != first


def test_stop__in_the_middle__ends_the_text(section: Locator) -> None:
    section.get_by_label("Tokens at most").fill("900")
    section.get_by_label("Begin a sentence").press("Enter")
    expect(section.locator("#write-text .token").nth(3)).to_be_visible()
    section.get_by_role("button", name="Stop").click()
    expect(section.locator("#write-status")).to_have_text("Stopped")
    expect(section.get_by_role("button", name="Write", exact=True)).to_be_focused()
    assert section.locator("#write-text .token").count() < 800


def test_token__pointed_at_and_by_keyboard__shows_what_was_considered(section: Locator) -> None:
    write(section, temperature="0")
    section.locator("#write-text .token").nth(2).hover()
    chart = section.get_by_role("list", name="What the model considered here")
    assert 6 <= chart.get_by_role("listitem").count() <= 7
    parts = [float(text.split("%")[0]) for text in chart.locator(".candidate-part").all_inner_texts()]
    assert parts == sorted(parts, reverse=True)
    assert sum(parts) <= 101
    expect(chart.locator(".chosen")).to_have_count(1)
    expect(section.get_by_role("heading", name="Token 3")).to_be_visible()
    section.locator("#write-text").press("ArrowRight")
    expect(section.get_by_role("heading", name="Token 4")).to_be_visible()


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_axe__written_text_with_a_chart__nothing_serious(section: Locator, size: dict[str, int]) -> None:
    page = section.page
    page.set_viewport_size({"width": size["width"], "height": size["height"]})
    write(section)
    section.locator("#write-text").press("End")
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate((fetch.npm_package(pins.AXE) / "axe.min.js").read_text() + "; undefined")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        found = page.evaluate(AXE)
        assert not found, "\n".join(found)
    assert not has_sideways_scroll(page)


def test_repo__of_this_site__says_its_size_and_becomes_a_conversation(
    section: Locator, site_server: Server, tmp_path: Path
) -> None:
    page = section.page
    site_server.mounts["/e2e/talking/"] = write_folder(tmp_path, talking_folder())
    section.get_by_label("Tokens at most").fill("1")  # is asked of text that goes on, not of a conversation
    page.evaluate("location.hash = 'repo=e2e/talking'")
    expect(section.locator("#write-source")).to_contain_text("onnx/model_q4.onnx")
    expect(section.locator("#write-source")).to_contain_text("On the GPU: 3.")
    expect(section.locator("#write-status")).to_have_text("The model is loaded")
    section.get_by_label("Your message").fill("Who is Emma?")
    section.get_by_role("button", name="Send").click()
    expect(section.locator(".chat-turn")).to_have_count(2)
    expect(section.locator(".chat-turn[data-role=assistant] p")).not_to_be_empty()
    section.get_by_role("button", name="Stop").click()
    expect(section.get_by_role("button", name="Send")).to_be_enabled()
    section.get_by_label("Your message").fill("And Harriet?")
    section.get_by_label("Your message").press("Enter")
    expect(section.locator(".chat-turn")).to_have_count(4)
    section.get_by_role("button", name="Begin anew").click()
    expect(section.locator(".chat-turn")).to_have_count(0)
    expect(page.locator("#storage-text")).to_contain_text("models, ")
    page.evaluate("location.hash = ''")


def test_conversation__longer_than_the_context__goes_on(section: Locator, site_server: Server, tmp_path: Path) -> None:
    """An answer of more tokens than the model can look back at, stopped there, and one to a message after it."""
    page = section.page
    site_server.mounts["/e2e/short/"] = write_folder(tmp_path, talking_folder(context=48))
    page.evaluate("location.hash = 'repo=e2e/short'")
    expect(section.locator("#write-model")).to_contain_text("short")  # not the model of the test before
    expect(section.locator("#write-status")).to_have_text("The model is loaded")
    for turn in (1, 2):
        section.get_by_label("Your message").fill("Who is Emma?")
        section.get_by_role("button", name="Send").click()
        expect(section.locator(".chat-turn").nth(2 * turn - 1).locator("p")).not_to_be_empty()
        facts = section.locator(".chat-log ~ p.caption")
        expect(facts).to_contain_text(re.compile(r"^(1[0-9]{2}|[2-9][0-9]{2}) tokens,"))
        section.get_by_role("button", name="Stop").click()
        expect(section.get_by_role("button", name="Send")).to_be_enabled()
        expect(section.locator(".chat-turn")).to_have_count(2 * turn)
    texts = section.locator(".chat-turn[data-role=assistant] p").all_text_contents()
    assert all(len(text) > 100 for text in texts), texts
    page.evaluate("location.hash = ''")


def test_folder__dropped_files_of_one__are_used(section: Locator) -> None:
    files = {path: base64.b64encode(content).decode() for path, content in talking_folder().items()}
    del files["tokenizer_config.json"]
    section.page.evaluate(
        """files => {
            const dataTransfer = new DataTransfer();
            for (const [path, content] of Object.entries(files)) {
                const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
                dataTransfer.items.add(new File([bytes], path.split('/').pop()));
            }
            document.querySelector('#write').dispatchEvent(
                new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        files,
    )
    expect(section.locator("#write-model")).to_contain_text(" MB")
    expect(section.locator("#write-status")).to_have_text("The model is loaded")
    assert write(section)


def test_directory__of_onnxruntime_genai_dropped__is_walked_and_says_its_size(section: Locator, tmp_path: Path) -> None:
    """A real drop: Chromium gives the page a directory, whose graph has the name and the place that its file says."""
    config = json.loads((FOLDER / "genai_config.json").read_text())
    config["model"]["decoder"]["filename"] = "parts/decoder_int4.onnx"
    files = {name: (FOLDER / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}
    files |= {"genai_config.json": json.dumps(config).encode()}
    files |= {"parts/decoder_int4.onnx": (FOLDER / "onnx" / "model_q4.onnx").read_bytes()}
    folder = write_folder(tmp_path / "my-writer", files)
    section.scroll_into_view_if_needed()
    box = section.bounding_box()
    assert box
    place = {"x": box["x"] + 30, "y": max(box["y"], 0) + 30}
    dragged = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    session = section.page.context.new_cdp_session(section.page)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": dragged})
    session.detach()
    expect(section.locator("#write-source")).to_contain_text("parts/decoder_int4.onnx 3.")
    expect(section.locator("#write-source")).to_contain_text("5.12 MB for a thousand tokens of text")
    expect(section.locator("#write-model")).to_contain_text("my-writer")
    expect(section.locator("#write-status")).to_have_text("The model is loaded")
    assert write(section)


def test_repo__elsewhere_and_none__says_what_to_do(section: Locator) -> None:
    page = section.page
    page.evaluate("location.hash = 'repo=https://example.org/model'")
    expect(section.locator("#write-error")).to_contain_text("only from its own site")
    page.evaluate("location.hash = ''")
    expect(section.locator("#write-error .error")).to_be_visible()
