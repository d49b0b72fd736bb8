"""One WebGPU page for all operator tests."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from e2e.gpu import Gpu


@pytest.fixture(scope="session")
def gpu(browser: Browser) -> Iterator[Gpu]:
    """A GPU that runs what operators lower to; see `tests.harness.check_case(name, gpu)`."""
    page = Gpu(browser)
    yield page
    page.close()
