"""Decoders compiled ahead of time: plans for each run that web/text/decoder.js makes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser

from pyruntime.cli import main
from pyruntime.compiler.plan import GpuSegment, Transfer, Unread
from pyruntime.compiler.saved import Saved, SavedProgram, read
from pyruntime.errors import InvalidArgument
from pyruntime.generate.facts import facts_of_graph
from pyruntime.ir import evaluate
from pyruntime.session.aot.compile_ahead import compile_model
from tools.devkit.shell import ROOT

AUSTEN = ROOT / "models" / "austen" / "onnx" / "model_q4.onnx"
LENGTHS = [*range(1, 258), 300, 511, 512, 513, 1022]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    out = tmp_path_factory.mktemp("plans") / "austen.plan"
    assert main(["compile", str(AUSTEN), "--text", "-o", str(out)]) == 0
    return read(out.read_bytes())


def takes(program: SavedProgram, tokens: int, past: int, logits: bool) -> bool:
    """Whether a program is for so many tokens after `past` others; open caches are in memory that has just the rows."""
    (segment,) = program.plan.steps
    assert isinstance(segment, GpuSegment)
    if bool(segment.downloads) != logits or bool(program.inputs) != (past > 0):
        return False
    given: list[Transfer | Unread] = [*segment.uploads, *program.plan.unread, *program.plan.external]
    fed = {t.name: t for t in given}
    sizes: dict[int, int] = {}
    for name, shape in (
        ("input_ids", (1, tokens)),
        ("attention_mask", (1, past + tokens)),
        ("past_key_values.0.key", (1, 2, past, 64)),
    ):
        kind = fed[name]
        for number, dim, size in zip(kind.scaled or (-1,) * kind.type.rank, kind.type.shape, shape, strict=True):
            if number < 0 and dim != size:
                return False
            if number >= 0:
                rows = past + tokens if name not in ("input_ids", "attention_mask") else size
                sizes[program.plan.expressions[number][0][1][0]] = rows
    if program.sizes is None:
        return True
    ranges = program.sizes["ranges"]
    values = [sizes.get(n, past) for n in range(len(ranges))]
    held = all(
        (evaluate(e, values) < 0 if c == "<" else evaluate(e, values) == 0) == a for e, c, a in program.sizes["guards"]
    )
    return held and all(low <= s <= high for s, (low, high) in zip(values, ranges, strict=True))


def test_text__prompts_of_each_length__have_plans(plan: Saved) -> None:
    """As web/text/decoder.js cuts them: all but the last token in parts of 256, then the last with its logits."""
    for length in LENGTHS:
        runs = [(min(256, length - 1 - at), at, False) for at in range(0, length - 1, 256)]
        for tokens, past, logits in [*runs, (1, length - 1, True)]:
            assert any(takes(p, tokens, past, logits) for p in plan.programs), (length, tokens, past, logits)


def test_text__prompts_after_a_text__have_plans(plan: Saved) -> None:
    for past in (2, 100, 700):
        for tokens in (1, 2, 7, 8, 9, 100, 256):
            assert any(takes(p, tokens, past, False) for p in plan.programs), (past, tokens)


def test_text__states_the_facts_of_the_decoder(plan: Saved) -> None:
    assert plan.decoder is not None
    assert plan.decoder["positions"] == 1024
    assert plan.decoder["local"] is None and plan.decoder["rows"] == {}


def test_text__plan__is_small_and_reproducible(plan: Saved) -> None:
    data = compile_model(AUSTEN, text=facts_of_graph)
    assert len(data) < 100_000 and data == compile_model(AUSTEN, text=facts_of_graph)


def test_text__another_model__is_refused_with_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    text = '<ir_version: 9, opset_import: ["" : 17]> relu (float[A, B] x) => (float[A, B] y) { y = Relu (x) }'
    onnx.save(parser.parse_model(text), path)
    with pytest.raises(InvalidArgument, match=r"--text: expected a decoder.*got the inputs \['x'\].*--shape"):
        compile_model(path, text=facts_of_graph)


def test_command__text_with_shapes__is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(AUSTEN), "--text", "--shape", "input_ids=1,8"]) == 1
    assert (
        "--text compiles the runs that text generation makes: leave out --shape and --value" in capsys.readouterr().err
    )
