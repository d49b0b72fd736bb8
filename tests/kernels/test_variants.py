"""Every kernel variant can be switched off: it is in no dispatch then. e2e/ops/test_variants.py compares results."""

from __future__ import annotations

import pytest

from pyruntime.errors import InvalidArgument
from pyruntime.kernels import Target
from pyruntime.kernels.variants import VARIANTS
from pyruntime.session.switches import disabled_names
from tests.harness import typed
from tests.kernels.variant_cases import CASES, runnable, target_of


def test_cases__every_variant__has_one() -> None:
    plans = {
        "dynamic_dimensions",
        "less_memory",
        "shared_memory",
        "read_only_constants",
        "shared_kernels",
    }  # not kernels: tests/session, tests/compiler
    assert CASES.keys() == VARIANTS.keys() - plans


@pytest.mark.parametrize("name", CASES)
def test_variant__switched_off__is_in_no_dispatch(name: str) -> None:
    case = CASES[name]
    types = [typed(x) for x in case.inputs()]
    target = Target(features=frozenset({"subgroups", "subgroup_size_32"}) | case.features)
    assert case.uses(runnable(target_of(target, case), case, types))
    without = runnable(target_of(target, case, name), case, types)
    assert without
    assert not case.uses(without)


def test_disabled_names__list__passes_and_variants() -> None:
    assert disabled_names("") == frozenset()
    assert disabled_names("fuse_epilogue, matmul_split,") == {"fuse_epilogue", "matmul_split"}


def test_disabled_names__unknown__says_what_there_is() -> None:
    with pytest.raises(InvalidArgument, match=r"matmul_spilt is no pass and no kernel variant.*matmul_split"):
        disabled_names("matmul_spilt")
