"""One WebGPU page for all operator tests."""

import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser

from e2e.harness.gpu import Gpu


@pytest.fixture(scope="session")
def gpu(unguarded_browser: Browser) -> Iterator[Gpu]:
    """A GPU that runs what operators lower to; see `tests.harness.check_case(name, gpu)`."""
    page = Gpu(unguarded_browser)
    yield page
    page.close()


@pytest.fixture
def software(gpu: Gpu) -> Gpu:
    """The same page, taken for SwiftShader: the kernels that compile and run fast on it."""
    other = copy.copy(gpu)
    other.target = replace(gpu.target, vendor="google")
    return other
