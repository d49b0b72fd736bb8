"""Plans of quantised models that serve every size (null device; the verifier proves their memory for the largest)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from pyruntime.device.null import NullDevice
from pyruntime.session import InferenceSession
from pyruntime.session.run.program import Program
from tests.quantized.models import dynamic, encoder, packed, residual_net, static
from tests.quantized.test_models import CALIBRATION
from tests.session.run.test_dynamic_sizes import TARGETS, on


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["encoder", "pictures", "packed"])
def test_plans__of_60_runs_of_random_sizes__are_few(name: str, target: str) -> None:
    made = {
        "encoder": lambda: dynamic(encoder(1, 32, 2)),
        "pictures": lambda: static(residual_net(32, 8), CALIBRATION),
        "packed": lambda: packed(256),
    }
    model = made[name]()
    device, r = NullDevice(TARGETS[target]), random.Random()

    def feeds() -> dict[str, Any]:
        if name == "encoder":
            return {"ids": np.zeros((r.randint(1, 4), r.randint(1, 300)), np.int64)}
        if name == "packed":
            return {"x": np.zeros((r.randint(1, 100), 256), np.float32)}
        return {"x": np.zeros((r.randint(1, 9), 3, 32, 32), np.float32)}

    async def use(session: InferenceSession, program: Program) -> None:
        plans: dict[int, Any] = {}
        for _ in range(60):
            await session.run_async(None, feeds())
            plans |= {id(stage): stage for stage in program.roots}
        assert len(plans) <= 8, [(p.sizes.ranges if p.sizes else p.signature) for p in plans.values()]
        assert not program.dynamic_dimensions.fixed

    on(device, model.SerializeToString(), use)
