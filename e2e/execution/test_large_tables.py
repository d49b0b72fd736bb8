"""Weights of 600 MB and of 160 MiB in a browser with the default limits: the GPU alone runs what reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from e2e.conformance.test_targets import python_on
from tests.large_tables import ROWS, USES, fed_to, logits_of, model_of, tokens, weight_model
from tests.sampling import ALL
from tools.devkit.server import Server

RUN = """
import numpy as np
import pyruntime as ort
options = ort.SessionOptions()
options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
session = await ort.InferenceSession.create("/table/model.onnx", options)
(y,) = await session.run_async(None, feeds)
limits = session.target.limits
session.release()
shown = y if columns is None else y[:, columns].astype(np.float32)
[limits.binding_bytes, list(y.shape), int(np.count_nonzero(y)), shown]
"""

KINDS = list(ROWS) if ALL else ["float16"]
"""Each takes up to a minute, and 2 GB of memory."""


@pytest.fixture
def folder(site_server: Server, tmp_path: Path) -> Iterator[Path]:
    """A folder that the server has as `/table/`."""
    site_server.mounts["/table/"] = tmp_path
    yield tmp_path
    del site_server.mounts["/table/"]


def found_by(browser: Browser, site_url: str, feeds: dict[str, Any], columns: list[int] | None) -> Any:
    with python_on("default", browser, site_url) as python:
        return python(RUN, feeds=feeds, columns=columns)


@pytest.mark.parametrize("kind", KINDS)
def test_table__of_600_mb__embeds_and_projects_on_the_gpu_alone(
    kind: str, browser: Browser, site_url: str, folder: Path
) -> None:
    model_of(folder, kind)
    columns = tokens(ROWS[kind])
    asked = [columns[5], -1]
    found = found_by(browser, site_url, {"i": np.array(asked)}, columns)
    expected = logits_of(kind, asked)
    assert found[:3] == [128 << 20, [2, ROWS[kind]], np.count_nonzero(expected)]
    np.testing.assert_allclose(found[3], expected[:, columns], rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("use", ["MatMul", "Gemm"])
def test_weight__of_160_mib__read_on_the_gpu_alone(use: str, browser: Browser, site_url: str, folder: Path) -> None:
    _, table = weight_model(folder, use)
    fed = fed_to(use)
    columns = list(range(0, 10_240 if use != "Gemm" else 4096, 97))
    found = found_by(browser, site_url, {"x": fed}, columns)
    assert found[0] == 128 << 20
    np.testing.assert_allclose(found[3], USES[use][2](fed, table)[:, columns], rtol=1e-3, atol=1e-3)
