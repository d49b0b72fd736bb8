"""The table of defences fits the code. `python -m tests.mutations` takes them away."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.mutations.__main__ import part_of_ci
from tests.mutations.table import MUTATIONS, Mutation
from tools.devkit.shell import ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.defence)
def test_mutation__of_the_code_as_it_is__is_one_place_and_its_tests_exist(mutation: Mutation) -> None:
    text = (ROOT / mutation.path).read_text()
    assert text.count(mutation.old) == 1
    for test in mutation.tests:
        path, _, name = test.partition("::")
        assert not name or re.search(rf"def {re.escape(name.partition('[')[0])}\(", (ROOT / path).read_text())


@pytest.mark.parametrize("folder", ["e2e", "tests"])
def test_mutations__their_tests_by_name_and_parameters__are_collected(folder: str) -> None:
    tests = sorted({test for m in MUTATIONS for test in m.tests if test.startswith(folder)})
    collecting = [sys.executable, "-m", "pytest", "--quiet", "--collect-only", *tests]
    found = subprocess.run(collecting, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_mutations__names__are_different() -> None:
    names = [m.defence for m in MUTATIONS]
    assert len(set(names)) == len(names)


def test_part_of_ci__nothing_changed__is_every_native_test_of_the_table() -> None:
    found = [test for m in part_of_ci(MUTATIONS, set()) for test in m.tests]
    assert found == [test for m in MUTATIONS for test in m.tests if not test.startswith("e2e/")]


@pytest.mark.parametrize("file", ["web/api/session.js", "e2e/reliability/test_reliability_page.py"])
def test_part_of_ci__file_changed__adds_the_browser_tests_of_its_defences(file: str) -> None:
    before, after = part_of_ci(MUTATIONS, set()), part_of_ci(MUTATIONS, {file})
    added = [m for m in after if m not in before]
    assert added and added == [m for m in MUTATIONS if file in m.files and m.in_browser]
