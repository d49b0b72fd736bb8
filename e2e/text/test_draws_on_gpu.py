"""Tokens drawn on the GPU, several queued ahead, are distributed as the softmax of what the rules keep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Browser

from e2e.harness.browser import guarded_page
from e2e.text.test_tokens_on_gpu import BATCHES_OF, Queueing
from tests.genai.packed import Shape, prompt_of, write_packed_folder
from tests.generate.test_sampling import quantile
from tests.sampling import ALL
from tools.devkit.server import Server

pytestmark = pytest.mark.unguarded

WORDS, LIKELY, DRAWS = 320, 24, 1500 if ALL else 600
SHAPE = Shape(layers=1, heads=1, groups=1, size=1, inner=1, words=WORDS, bias=False, tied=False)


def logits_of(seed: int = 4) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Of every token of every text: a few are likely, the others all but impossible."""
    made = np.full(WORDS, -40, np.float32)
    rng = np.random.default_rng(seed)
    made[rng.choice(np.arange(3, WORDS), LIKELY, replace=False)] = rng.normal(0, 1.2, LIKELY)
    return made


def same_logits_always() -> bytes:
    """A decoder with caches whose logits hang on nothing: each token of a text is a draw of one distribution."""

    def value(name: str, kind: int, *dims: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, dims)

    axes = {"one": np.array([1]), "two": np.array([2]), "around": np.array([1, 3])}
    weights = [numpy_helper.from_array(array, name) for name, array in axes.items()]
    weights += [
        numpy_helper.from_array(logits_of(), "table"),
        numpy_helper.from_array(np.zeros((), np.float32), "zero"),
    ]
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["ids"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["mask", "one"], ["length"], keepdims=1),
        helper.make_node("Add", ["ids", "length"], ["seen"]),
        helper.make_node("Mul", ["seen", "zero"], ["nothing"]),
        helper.make_node("Unsqueeze", ["nothing", "two"], ["column"]),
        helper.make_node("Add", ["column", "table"], ["logits"]),
        helper.make_node("Unsqueeze", ["ids", "around"], ["rows"]),
    ]
    inputs = [value("input_ids", TensorProto.INT64, "batch_size", "sequence_length")]
    inputs += [value("attention_mask", TensorProto.INT64, "batch_size", "total_sequence_length")]
    outputs = [value("logits", TensorProto.FLOAT, "batch_size", "sequence_length", WORDS)]
    for kind in ("key", "value"):
        past, present = f"past_key_values.0.{kind}", f"present.0.{kind}"
        nodes.append(helper.make_node("Concat", [past, "rows"], [present], axis=2))
        inputs.append(value(past, TensorProto.FLOAT, "batch_size", 1, "past_sequence_length", 1))
        outputs.append(value(present, TensorProto.FLOAT, "batch_size", 1, "total_sequence_length", 1))
    graph = helper.make_graph(nodes, "same_logits_always", inputs, outputs, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(made.SerializeToString())


@pytest.fixture(scope="module")
def shared_script(
    browser: Browser, site_url: str, site_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Queueing]:
    folder = write_packed_folder(tmp_path_factory.mktemp("draws"), SHAPE)
    (folder / "model.onnx").write_bytes(same_logits_always())
    site_server.mounts["/e2e/draws/"] = Path(folder)
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        guard.allow("404")  # config.json
        script = Queueing(page, guard)
        script("globalThis.generator = await TextGenerator.create('/e2e/draws/');")
        yield script


def kept(options: dict[str, float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Temperature, top-k, top-p and min-p in this order, as transformers' warpers have them."""
    x = logits_of().astype(np.float64) / options.get("temperature", 1)
    p = np.exp(x - x.max())
    order = np.argsort(-p, kind="stable")
    p[order[int(options.get("topK", WORDS)) :]] = 0
    p /= p.sum()
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= options.get("topP", 1)]] = 0
    p[p < options.get("minP", 0) * p.max()] = 0
    return np.asarray(p / p.sum())


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1},
        {"temperature": 0.6},
        {"temperature": 1.7},
        {"temperature": 1, "topK": 7},
        {"temperature": 1, "topP": 0.8},
        {"temperature": 1, "minP": 0.15},
        {"temperature": 1.3, "topK": 15, "topP": 0.9, "minP": 0.05},
    ],
    ids=str,
)
def test_draws__of_a_queued_text__chi_square(options: dict[str, float], script: Queueing) -> None:
    """And the same seed draws the same, another one something else."""
    first, again, other, queued = script(
        """
        const prompt = generator.decode(ids);
        const all = { ...options, endTokens: [], keepPrompt: false };
        const texts = [];
        for (const [seed, maxNewTokens] of [[11, draws], [11, 100], [12, 100]]) {
          texts.push(idsOf(await write(prompt, { ...all, seed, maxNewTokens })));
        }
        return [...texts, steps.length];
        """,
        BATCHES_OF,
        ids=prompt_of(5, WORDS),
        options=options,
        draws=DRAWS,
    )
    assert queued == 0
    assert first[:100] == again
    assert other != again
    p = kept(options)
    seen = np.bincount(first, minlength=WORDS)
    possible = p * DRAWS > 1e-6
    assert seen.sum() == DRAWS
    assert not seen[~possible].any()
    # Bins that few draws are expected in are one.
    counts, expected = seen[possible], p[possible] * DRAWS
    rare = expected < 5
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    counts, expected = counts[expected > 0], expected[expected > 0]
    statistic, freedom = ((counts - expected) ** 2 / expected).sum(), len(counts) - 1
    assert freedom >= 3
    assert statistic < quantile(freedom)
