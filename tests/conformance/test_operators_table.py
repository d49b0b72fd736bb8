"""OPERATORS.md says what the registry and the lists of known failures say."""

from __future__ import annotations

from e2e.conformance.operators import PATH, render


def test_operators_table__committed_text__is_up_to_date() -> None:
    assert PATH.read_text() == render(), "run `python -m e2e.conformance --table`"
