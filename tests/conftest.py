"""Native tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from tests.selection import leave_out, longest_first, pytest_terminal_summary, pytest_testnodedown

__all__ = ["pytest_terminal_summary", "pytest_testnodedown"]  # hooks

os.environ["PYRUNTIME_VERIFY"] = "1"  # every plan that a test makes is proved
os.environ["PYRUNTIME_STRICT"] = "1"  # no fallback that no class declares
os.environ.setdefault("PYRUNTIME_WEBGPU", "off")  # models run on NumPy, but for tests with `desktop_gpu`


@pytest.fixture(autouse=True)
def variables_stay() -> Iterator[None]:
    """A test leaves the package's environment variables as they were: later sessions choose their GPU by them."""
    before = _variables()
    yield
    assert _variables() == before


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("PYRUNTIME_")}


@pytest.fixture
def desktop_gpu() -> Iterator[None]:
    """Sessions run on this machine's software adapter; skipped where there is none."""
    from tests.desktop import on_desktop

    with on_desktop():
        yield


@pytest.fixture(params=["wgpu", "dawn"])
def every_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """Sessions run on a software adapter, through each implementation of WebGPU; skipped where there is none."""
    from tests.desktop import on_desktop

    with on_desktop(request.param):
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items, "tests")
    longest_first(items)


def pytest_collection_finish() -> None:
    """Keep Python from walking all that was collected: the node tests alone are many."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
