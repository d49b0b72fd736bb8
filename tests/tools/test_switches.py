"""docs/SWITCHES.md names every pass and kernel variant."""

from __future__ import annotations

from tools import switches


def test_page__in_the_checkout__is_up_to_date() -> None:
    assert switches.TARGET.read_text() == switches.page(), "run `python -m tools.switches`"
