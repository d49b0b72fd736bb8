"""The pages of examples/: each does what it shows, with the numbers of onnxruntime's CPU provider."""

from __future__ import annotations

import io
import json
import re
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from e2e.conftest import mounts
from e2e.demo.test_page_access import AXE
from e2e.harness.browser import Guard
from e2e.harness.page import has_sideways_scroll
from e2e.harness.writing import Loop
from e2e.transformers.repositories import write_repositories
from pyruntime.generate.tokenizer import Tokenizer
from tests.tools.test_log_mel import features
from tools.devkit import fetch, pins
from tools.devkit.server import Server
from tools.devkit.shell import ROOT

Array = np.ndarray[Any, np.dtype[Any]]
NAMES = sorted(path.stem for path in (ROOT / "examples").glob("*.html"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    write_repositories(folder)
    return folder


@pytest.fixture(scope="module")
def url(site: Path, models: Path) -> Iterator[str]:
    with Server(mounts(site) | {"/repositories/": models}) as server:
        yield server.url


@pytest.fixture(scope="module")
def site_url(url: str) -> str:
    return url


def opened(page: Page, url: str, name: str, model: str = "") -> Page:
    page.goto(f"{url}examples/{name}.html" + (f"?model=/repositories/{model}/" if model else ""))
    expect(page.get_by_role("status")).to_have_text("Ready")
    return page


def session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", NAMES)
def test_source__of_each__is_a_page_of_under_100_lines(name: str) -> None:
    lines = (ROOT / "examples" / f"{name}.html").read_text("utf-8").splitlines()
    assert len(lines) < 100
    imported = set(re.findall(r"from '([^']+)'", "\n".join(lines)))
    assert imported <= {"../web/pyruntime.js", "../web/vendor/tokenizers.js", f"./{name}.js"}


def test_generation__letters_forbidden__is_the_likeliest_text_without_them(page: Page, url: str) -> None:
    opened(page, url, "generation")
    page.get_by_label("Beginning").fill("She was")
    page.get_by_label("Letters").fill("eZ")
    page.get_by_label("Temperature").fill("0")
    page.get_by_role("button", name="Write").click()
    expect(page.get_by_role("status")).to_contain_text("80 tokens")
    tokenizer = Tokenizer(ROOT / "models" / "austen")
    texts = [tokenizer.decode([i]).lower() for i in range(len(tokenizer.vocabulary))]
    unwanted = np.array([bool(set("ez") & set(text)) for text in texts])
    loop, ids = Loop(), tokenizer.encode("She was")
    logits, made = loop.step(ids), []
    for _ in range(80):
        logits[: len(unwanted)][unwanted] = -np.inf
        made.append(int(np.argmax(logits)))
        logits = loop.step(made[-1:])
    shown = page.locator("#text").text_content()
    assert shown == tokenizer.decode([*ids, *made])
    assert not set("ezEZ") & set(shown.removeprefix("She was"))


LINES = ["the city of paris", "a great film", "who lives in london and works", "sport and science", "we hate it"]


def vectors(folder: Path, texts: list[str]) -> Array:
    tokenizer, encoder = Tokenizer(folder), session(folder / "onnx" / "model.onnx")
    made = []
    for text in texts:
        ids = np.array([tokenizer.encode(text)], np.int64)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean = np.asarray(encoder.run(None, feeds)[0])[0].mean(axis=0)
        made.append(mean / np.linalg.norm(mean))
    return np.array(made)


def test_embeddings__lines_and_a_question__sorted_as_onnxruntime_has_them(page: Page, url: str, models: Path) -> None:
    opened(page, url, "embeddings", "encoder")
    page.get_by_label("Text").fill("\n".join(LINES))
    page.get_by_label("Search").fill("what is london")
    expect(page.locator("#found li")).to_have_count(len(LINES))
    question, *others = vectors(models / "encoder", ["what is london", *LINES])
    likeness = np.array([other @ question for other in others])
    shown = page.locator("#found li").all_text_contents()
    order = np.argsort(-likeness)
    assert [text.split(" ", 1)[1] for text in shown] == [LINES[i] for i in order]
    np.testing.assert_allclose([float(text.split()[0]) for text in shown], likeness[order], atol=1e-3)
    expect(page.get_by_role("status")).to_contain_text("6 new vectors")
    page.get_by_label("Text").fill("\n".join([*LINES, "one more"]))
    expect(page.get_by_role("status")).to_contain_text("1 new vectors")


def picture(side: int = 64) -> Array:
    y, x, c = np.mgrid[:side, :side, :3]
    return np.asarray(128 + 100 * np.sin((x * (c + 1) + y * 2) / 7), np.uint8)


def test_detection__picture_chosen__has_the_boxes_of_onnxruntime(page: Page, url: str, models: Path) -> None:
    opened(page, url, "detection", "boxes")
    page.get_by_label("Least score").fill("0")
    file = io.BytesIO()
    Image.fromarray(picture()).save(file, "png")
    page.locator("#file").set_input_files({"name": "p.png", "mimeType": "image/png", "buffer": file.getvalue()})
    expect(page.locator("#found li")).to_have_count(6)
    folder = models / "boxes"
    how, config = (json.loads((folder / f"{n}.json").read_text()) for n in ("preprocessor_config", "config"))
    pixels = (picture() / 255 - how["image_mean"]) / how["image_std"]
    feeds = {"pixel_values": np.float32(pixels.transpose(2, 0, 1)[np.newaxis]), "pixel_mask": np.ones((1, 64, 64), int)}
    logits, boxes = (np.asarray(value)[0] for value in session(folder / "onnx" / "model.onnx").run(None, feeds))
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    kinds, best = scores[:, :-1].argmax(axis=1), scores[:, :-1].max(axis=1)
    order = np.argsort(-best)
    shown = [text.rsplit(" ", 1) for text in page.locator("#found li").all_text_contents()]
    assert [label for label, _ in shown] == [config["id2label"][str(kinds[i])] for i in order]
    np.testing.assert_allclose([float(score.rstrip("%")) for _, score in shown], best[order] * 100, atol=0.1)
    x, y, w, h = boxes[order[0]] * 64
    drawn = page.evaluate(
        """([x, y]) => [...document.querySelector('canvas').getContext('2d').getImageData(x, y, 1, 1).data]""",
        [int(min(63, x - w / 2 + w * 0.5)), int(np.clip(y - h / 2, 0, 63))],
    )
    expected = picture()[int(np.clip(y - h / 2, 0, 63)), int(min(63, x))]
    assert np.abs(np.array(drawn[:3]) - expected).max() > 20, "an edge of the first box"


SECONDS = 34


def sound() -> Array:
    """Tones that change, and noise: int16 at 16 kHz."""
    time = np.arange(SECONDS * 16000) / 16000
    tone = np.sin(2 * np.pi * (180 + 60 * np.sin(time * 2)) * time) * (0.5 + 0.4 * np.sin(time * 5))
    return np.asarray(8000 * tone + np.random.default_rng(3).normal(0, 300, len(time)), np.int16)


class Whisper:
    """Chunks, languages, timestamps by the published rules, with onnxruntime's sessions and features of NumPy."""

    def __init__(self, folder: Path) -> None:
        self.encoder, self.decoder = (
            session(folder / "onnx" / f"{name}.onnx") for name in ("encoder_model", "decoder_model_merged")
        )
        self.rules = json.loads((folder / "generation_config.json").read_text())
        self.first = self.rules["no_timestamps_token_id"] + 1
        self.end = self.rules["eos_token_id"]

    def logits(self, states: Array, ids: list[int], past: dict[str, Array]) -> Array:
        names = [value.name for value in self.decoder.get_inputs() if value.name.startswith("past")]
        feeds = {name: past.get(name, np.zeros((1, 4, 0, 8), np.float32)) for name in names}
        feeds |= {"input_ids": np.array([ids], np.int64), "encoder_hidden_states": states}
        logits, *presents = self.decoder.run(None, feeds | {"use_cache_branch": np.array([bool(past)])})
        for value, made in zip(self.decoder.get_outputs()[1:], presents, strict=True):
            name = value.name.replace("present", "past_key_values")
            if "decoder" in name or name not in past:
                past[name] = np.asarray(made)
        return np.asarray(np.asarray(logits)[0, -1].astype(np.float64))

    def choose(self, logits: Array, made: list[int]) -> int:
        first, allowed = self.first, np.ones(len(logits), bool)
        allowed[[*self.rules["suppress_tokens"], first - 1]] = False
        if not made:
            allowed[self.rules["begin_suppress_tokens"]] = False
            allowed[:first] = allowed[first + self.rules["max_initial_timestamp_index"] + 1 :] = False
        elif made[-1] >= first and (len(made) < 2 or made[-2] >= first):
            allowed[first:] = False
        elif made[-1] >= first:
            allowed[: self.end] = False
        times = [i for i in made if i >= first]
        if times:
            again = made[-1] >= first and len(made) > 1 and made[-2] < first
            allowed[first : times[-1] + (not again)] = False
        weights = np.exp(logits - logits.max()) * allowed
        if weights[first:].sum() > weights[:first].max():
            weights[:first] = 0
        return int(weights.argmax())

    def phrases(self, samples: Array) -> Iterator[tuple[float, float, list[int]]]:
        start, language, at = self.rules["decoder_start_token_id"], None, 0
        while at < len(samples):
            chunk = np.zeros(480000)
            chunk[: len(samples) - at] = samples[at : at + 480000]
            states = self.encoder.run(None, {"input_features": np.float32(features(chunk, 80)[np.newaxis])})[0]
            if language is None:
                logits = self.logits(states, [start], {})
                language = max(self.rules["lang_to_id"].values(), key=lambda i: logits[i])
            past: dict[str, Array] = {}
            made: list[int] = []
            ids = [start, language, self.rules["task_to_id"]["transcribe"]]
            while len(made) < 32 and (not made or made[-1] != self.end):
                made.append(self.choose(self.logits(states, ids, past), made))
                ids = made[-1:]
            begin, words, base = 0.0, [], at / 16000
            kept = [i for i in made if i != self.end]
            for i in kept:
                if i < self.first:
                    words.append(i)
                    continue
                if words:
                    yield base + begin, base + (i - self.first) / 50, words
                begin, words = (i - self.first) / 50, []
            more = at + 480000 < len(samples) and begin > 1 and (bool(words) or kept[-2] >= self.first)
            if words and not more:
                yield base + begin, base + max(begin, min(30, len(samples) / 16000 - base)), words
            at += round(begin * 16000) if more else 480000


def test_whisper__sound_of_two_chunks__has_the_phrases_of_onnxruntime(page: Page, url: str, models: Path) -> None:
    opened(page, f"{url}src/", "whisper", "whisper")
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setparams((1, 2, 16000, 0, "NONE", ""))
        written.writeframes(sound().tobytes())
    page.locator("#sound").set_input_files({"name": "tones.wav", "mimeType": "audio/wav", "buffer": file.getvalue()})
    expect(page.get_by_role("status")).to_have_text(f"{SECONDS}.0 s heard", timeout=240_000)
    tokenizer = Tokenizer(models / "whisper")
    expected = list(Whisper(models / "whisper").phrases(sound() / 32768))
    assert len(expected) >= 2
    wanted = [f"{begin:.2f}–{end:.2f} s {tokenizer.decode(ids)}" for begin, end, ids in expected]
    assert page.locator("#text p").evaluate_all("all => all.map(({ textContent }) => textContent)") == wanted
    kept = page.evaluate("async () => (await import('/src/web/api/client.js')).client().call('keptTensors', {})")
    assert kept == 0, "tensors left on the GPU"


@pytest.mark.parametrize("name", ["detection", "embeddings", "whisper"])
def test_page__without_a_model__says_so_and_fits_a_phone(page: Page, guard: Guard, url: str, name: str) -> None:
    guard.allow("No model yet")
    page.goto(f"{url}examples/{name}.html")
    expect(page.get_by_role("status")).to_have_text("No model yet")
    page.set_viewport_size({"width": 360, "height": 800})
    assert not has_sideways_scroll(page)


@pytest.mark.parametrize("name", ["detection", "embeddings"])
def test_page__folder_that_is_not_there__names_the_file_and_fits_a_phone(
    page: Page, guard: Guard, url: str, name: str
) -> None:
    guard.allow("404")
    page.goto(f"{url}examples/{name}.html?model=/{'nowhere/' * 8}")
    expect(page.get_by_role("status")).to_have_text(re.compile(r"(nowhere/){8}\w+\.json answers 404$"))
    page.set_viewport_size({"width": 360, "height": 800})
    assert not has_sideways_scroll(page)


@pytest.mark.parametrize("name", NAMES)
def test_page__in_both_themes_and_sizes__is_accessible_and_fits(page: Page, url: str, name: str) -> None:
    models = {"detection": "boxes", "embeddings": "encoder", "whisper": "whisper"}
    opened(page, url, name, models.get(name, ""))
    page.evaluate((fetch.npm_package(pins.AXE) / "axe.min.js").read_text("utf-8") + "; undefined")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (360, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert not has_sideways_scroll(page)
            assert page.evaluate(AXE) == []
