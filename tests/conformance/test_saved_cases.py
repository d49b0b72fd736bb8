"""ONNX's node tests and model sets as compiled models, natively: each comes back, or is refused with a way out."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from e2e.conformance.saved import REFUSALS, every_case, saved_cases
from pyruntime.compiler.saved import read, write
from pyruntime.compiler.verify import verify
from pyruntime.onnx.formats.source import open_file
from pyruntime.session.aot.compile_ahead import compile_model


@pytest.fixture(scope="module", autouse=True)
def quiet() -> None:
    warnings.simplefilter("ignore", RuntimeWarning)


def test_cases__all__are_compiled_and_come_back__or_are_refused_with_a_way_out(tmp_path: Path) -> None:
    compiled, refused = saved_cases(every_case(), tmp_path)
    assert len(compiled) >= 1700, "cases that can be compiled"
    for made in compiled:
        source = open_file(made.path)
        again = read(made.plan, source)
        assert write(again, source) == made.plan, made.case.name
        for plan in (*again.computed, *(p.plan for p in again.programs)):
            verify(plan)
    twice = compiled[::4]
    assert [m.case.name for m in twice if compile_model(m.path, m.shapes) != m.plan] == [], "compiled twice"
    assert [pair for pair in refused.items() if not any(way in pair[1] for way in REFUSALS)] == []
