"""Whole quantised models, node by node on the GPU, as the passes leave them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.quantized.models import dynamic, encoder, static
from tests.quantized.planned import planned
from tests.quantized.test_models import CALIBRATION, KINDS, ids, reference, residual_net


@pytest.mark.parametrize("device", ["gpu", "software"])
@pytest.mark.parametrize("length", [1, 24])
def test_encoder__dynamically_quantised__as_onnxruntime(
    length: int, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    model = dynamic(encoder(2, 64, 4))
    feeds = {"ids": ids(1, length)}
    (mine,) = planned(model, {"ids": (1, length)}, gpu.target).run(feeds, gpu)
    (theirs,) = reference(model, feeds)
    # A value next to a tie may become the next byte: a step of an activation, which the following layers carry on.
    np.testing.assert_allclose(mine, theirs, atol=0.05)
    assert np.mean(np.abs(mine - theirs)) < 0.005


@pytest.mark.parametrize("device", ["gpu", "software"])
@pytest.mark.parametrize("kind", KINDS)
def test_residual_net__statically_quantised__as_onnxruntime(
    kind: str, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    model = static(residual_net(32, 16), CALIBRATION, **KINDS[kind])
    feeds = {"x": CALIBRATION[0]}
    (mine,) = planned(model, {"x": (2, 3, 32, 32)}, gpu.target).run(feeds, gpu)
    (theirs,) = reference(model, feeds)
    scale = np.unique(np.abs(theirs))
    np.testing.assert_allclose(mine, theirs, atol=1.01 * float(np.diff(scale).min()))
