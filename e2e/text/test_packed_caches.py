"""Caches of 8 and 4 bits in the browser: the texts of Python on NumPy, in the generator and in the element."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from e2e.harness.script import Script
from e2e.harness.writing import FOLDER, PROMPT
from pyruntime import genai
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions

LONG = (PROMPT + " that a single man in possession of ") * 24
TOKENS = 12

WRITE = """
const { TextGenerator } = await import('/src/web/pyruntime.js');
const generator = await TextGenerator.create('/models/austen', { kvCacheBits });
const texts = [];
for (const prompt of prompts) {
  const ids = [];
  const options = { temperature: 0, endTokens: [], maxNewTokens: tokens };
  for await (const { id } of generator.generate(prompt, options)) ids.push(id);
  texts.push(ids);
}
const caches = generator.session.inputMetadata.filter(({ name }) => name.startsWith('past'));
await generator.release();
return { texts, caches: caches.map(({ type, shape }) => [type, shape[3]]) };
"""


@pytest.fixture(scope="module")
def shared_script(browser: Browser, site_url: str) -> Iterator[Script]:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        yield Script(page, guard)


@functools.cache
def written(prompt: str, bits: int) -> list[int]:
    config = genai.Config(str(FOLDER))
    config.kv_cache_bits = bits
    config.clear_providers()
    model = genai.Model(config)
    generator = TextGenerator(model.decoder, genai.Tokenizer(model).inner)
    options = GenerationOptions(max_new_tokens=TOKENS, end_tokens=())
    return [piece.id for piece in generator.generate_sync(prompt, options)]


@pytest.mark.parametrize("bits", [8, 4])
def test_generator__cache_bits__writes_the_texts_of_numpy(script: Script, bits: int) -> None:
    """The second prompt begins like the first, whose rows are kept; the third takes several runs."""
    prompts = [PROMPT, PROMPT + " that", LONG]
    found = script(WRITE, kvCacheBits=bits, prompts=prompts, tokens=TOKENS)
    assert {tuple(c) for c in found["caches"]} == {("uint8", 64 * bits // 8 + 4)}
    assert found["texts"] == [written(prompt, bits) for prompt in prompts]


def test_generator__other_bits__are_refused(script: Script) -> None:
    with pytest.raises(Exception, match="expected 8 or 4, got '5'"):
        script(WRITE, kvCacheBits=5, prompts=[], tokens=1)


def test_element__cache_bits__are_those_of_its_generator(script: Script) -> None:
    found = script(
        """
        await import('/src/web/widget.js');
        const element = document.createElement('pyruntime-model');
        for (const [name, value] of Object.entries({ src: '/models/austen', input: 'text', 'kv-cache-bits': '8' })) {
          element.setAttribute(name, value);
        }
        document.body.append(element);
        const { inputMetadata } = await element.load();
        element.remove();
        return inputMetadata.find(({ name }) => name.startsWith('past')).type;
        """
    )
    assert found == "uint8"
