"""The lists of known failures are strict."""

from __future__ import annotations

import pytest

from e2e.conformance.known import Known, known_failures, verdict
from e2e.conformance.suites import SUITES

LISTED = {"a": Known("because"), "lucky": Known("random numbers", by_chance=True)}


def test_verdict__as_listed__is_nothing() -> None:
    assert verdict({"a": "wrong", "b": "", "lucky": "wrong"}, LISTED) == ""


def test_verdict__unlisted_failure__is_reported_with_its_cause() -> None:
    assert "  b: off by one" in verdict({"a": "wrong", "b": "off by one", "lucky": "wrong"}, LISTED)


def test_verdict__listed_case_that_passes__is_reported() -> None:
    text = verdict({"a": "", "lucky": ""}, LISTED)
    assert "  a" in text.splitlines() and "lucky" not in text


def test_verdict__listed_name_that_is_no_case__is_reported() -> None:
    assert "no cases of this suite" in verdict({"lucky": ""}, LISTED)


@pytest.mark.parametrize("suite", SUITES)
def test_known_failures__of_every_suite__have_reasons(suite: str) -> None:
    assert all(known.reason for known in known_failures(suite).values())
