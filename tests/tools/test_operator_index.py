"""pyruntime/ops/index.py is what its tool writes: every operator is found."""

from __future__ import annotations

from tools import operator_index


def test_page__in_the_checkout__is_up_to_date() -> None:
    message = "run `python -m tools.operator_index`"
    assert operator_index.TARGET.read_text() == operator_index.page(), message


def test_page__operator_of_several_modules__names_all() -> None:
    page = operator_index.page()
    assert '"elementwise.axis_broadcast": "Add And Div ' in page
    assert '"elementwise.binary": (\n            "Add And BitwiseAnd ' in page
