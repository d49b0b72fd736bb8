"""One WebGPU page for all operator tests."""

from collections.abc import Iterator

import pytest

from e2e.gpu import Gpu


@pytest.fixture(scope="session")
def gpu() -> Iterator[Gpu]:
    """A GPU that runs what operators lower to; see `tests.harness.check_case(name, gpu)`."""
    page = Gpu()
    yield page
    page.close()
