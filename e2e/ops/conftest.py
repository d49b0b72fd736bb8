"""One WebGPU page for all operator tests."""

import copy
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Playwright

from e2e.gpu import Gpu
from e2e.harness.browser import UNGUARDED, launch
from tools.devkit.chromium import ensure_chromium


@pytest.fixture(scope="session")
def gpu(playwright: Playwright) -> Iterator[Gpu]:
    """A GPU that runs what operators lower to; see `tests.harness.check_case(name, gpu)`.

    In a browser of its own: ONNX's cases and the pages run with shaders guarded, as users' browsers have them.
    """
    with launch(playwright, ensure_chromium(Path(sys.executable)), UNGUARDED) as browser:
        page = Gpu(browser)
        yield page
        page.close()


@pytest.fixture
def software(gpu: Gpu) -> Gpu:
    """The same page, taken for SwiftShader: the kernels that compile and run fast on it."""
    other = copy.copy(gpu)
    other.target = replace(gpu.target, vendor="google")
    return other
