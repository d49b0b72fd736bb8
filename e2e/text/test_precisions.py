"""TextGenerator on decoders in float32 and float16: the tokens of onnxruntime's CPU, also without shader-f16.

In int4 with float32 test_tokens_on_gpu.py has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import pytest
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from e2e.harness.writing import Writing
from tests.genai.greedy import greedy
from tests.genai.packed import SHAPES, prompt_of, write_packed_folder
from tests.genai.precisions import PROMPTS, SEEDS, TOKENS
from tools.devkit.server import Server


@pytest.fixture(scope="module")
def shared_script(browser: Browser, site_url: str) -> Iterator[Writing]:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        yield Writing(page, guard)


@pytest.mark.parametrize(("kind", "precision"), [key for key in SEEDS if key[1] != "int4"])
def test_greedy__64_tokens__are_those_of_onnxruntime(
    kind: str, precision: str, script: Writing, site_server: Server, tmp_path: Path
) -> None:
    script.guard.allow("404")  # config.json
    shape = SHAPES[kind]
    folder = write_packed_folder(tmp_path, shape, SEEDS[kind, precision], precision)
    name = f"/e2e/{kind}-{precision.replace(' ', '-')}/"
    site_server.mounts[name] = folder
    prompts = {str(tokens): prompt_of(tokens, shape.words) for tokens in PROMPTS[::2]}
    found = script(
        """
        const other = await TextGenerator.create(name);
        const found = {};
        for (const [tokens, ids] of Object.entries(prompts)) {
          const options = { temperature: 0, maxNewTokens, endTokens: [], keepPrompt: false };
          found[tokens] = idsOf(await write(other.decode(ids), options, other));
        }
        await other.release();
        return found;
        """,
        name=name,
        prompts=prompts,
        maxNewTokens=TOKENS,
    )
    theirs = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    for tokens, prompt in prompts.items():
        assert found[tokens] == greedy(theirs, shape, prompt, TOKENS)[0], tokens
