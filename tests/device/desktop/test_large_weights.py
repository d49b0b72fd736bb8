"""Weights of 160 MiB and of 600 MB at WebGPU's guaranteed limits: the GPU alone runs what reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyruntime as ort
from pyruntime.target import Limits
from tests.desktop import on_target
from tests.large_tables import NBYTES, ROWS, USES, fed_to, logits_of, model_of, tokens, weight_model


@pytest.mark.parametrize("kind", ROWS)
def test_run__table_of_600_mb_at_portable_limits__on_the_gpu_alone(
    kind: str, desktop_gpu: None, tmp_path: Path
) -> None:
    path, rows = model_of(tmp_path, kind), ROWS[kind]
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with on_target("default") as device:
        assert device.target.limits == Limits()
        session = ort.InferenceSession(path, options)
        (y,) = session.run(None, {"i": np.array([tokens(rows)[5], -1])})
        assert NBYTES < device.ledger.total < 1.2 * NBYTES + 4 * y.nbytes
        assert max(device.ledger.live.values()) <= device.target.limits.buffer_bytes
    np.testing.assert_allclose(y, logits_of(kind, [tokens(rows)[5], -1]), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("use", USES)
def test_run__weight_of_160_mib_at_portable_limits__on_the_gpu_alone(
    use: str, desktop_gpu: None, tmp_path: Path
) -> None:
    path, table = weight_model(tmp_path, use)
    fed = fed_to(use)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with on_target("default") as device:
        assert device.target.limits == Limits()
        (result,) = ort.InferenceSession(path, options).run(None, {"x": fed})
    np.testing.assert_allclose(result, USES[use][2](fed, table), rtol=1e-3, atol=1e-3)
