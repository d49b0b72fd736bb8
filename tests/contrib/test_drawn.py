"""What the families draw: every attribute with several values, every optional input given and absent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import onnx
import pytest

from tests.contrib.case import draws
from tests.contrib.samples import GPU, NATIVE, SOFTWARE, sample
from tests.contrib.test_cases import SEED
from tests.contrib.test_schema import UNCOUNTED, schemas

MANY = 300

UNVARIED: dict[str, str] = {
    "MoE.use_sparse_mixer": "refused: its routing is not implemented",
    "QMoE.use_sparse_mixer": "refused: its routing is not implemented",
    "QMoE.weights_prepacked": "layouts of CUDA kernels are refused",
    "QMoE.quant_type": "floats of 4 and 8 bits, of CUDA kernels, are refused",
    "MatMulNBits.weight_prepacked": "layouts of CUDA kernels are refused",
    "SimplifiedLayerNormalization.stash_type": "onnxruntime has 1 alone",
    **{
        f"CausalConvWithState.{name}": "refused: of onnxruntime's CUDA provider"
        for name in (
            "input_channel_offset",
            "input_channels",
            "state_channels_last",
            "state_length",
            "state_update_capacity",
        )
    },
    "VarlenCausalConvWithState.state_update_capacity": "refused: for engines that take tokens back",
    "VarlenCausalConvWithState.delta_offset": "of onnxruntime's CUDA provider",
    "VarlenCausalConvWithState.group_size": "of onnxruntime's CUDA provider",
    "GatedDeltaNet.state_update_capacity": "refused: for engines that take tokens back",
    "GatedDeltaNet.chunk_size": "a hint for other kernels, without a meaning for results",
    "CausalConvWithState.ndim": "refused other than 1: the specification does not say how more are padded",
}
"""Attributes that are drawn with no two values, with the reason."""

ALWAYS: dict[str, str] = {
    "QMoE.fc1_scales": "absent only where weights are floats",
    "QMoE.fc2_scales": "absent only where weights are floats",
}
"""Optional inputs that are always given."""

NEVER: dict[str, str] = {
    **dict.fromkeys(
        (
            "GatedDeltaNet.capture_count",
            "GatedDeltaNet.state_update_active",
            "VarlenCausalConvWithState.capture_count",
            "VarlenCausalConvWithState.kernel_delta",
            "VarlenCausalConvWithState.previous_mask",
        ),
        "refused: for engines that take tokens back, or of onnxruntime's CUDA provider",
    ),
    "MoEGroupRouter.projection_weight": "onnxruntime wants widths of 256 there, see test_moe_group_router",
    **{
        f"QMoE.{name}": "of floats of 4 and 8 bits"
        for name in (
            *(f"fc{i}_global_scale" for i in (1, 2)),
            *(f"fc{i}_act{part}_scale" for i in (1, 2) for part in ("", "_block")),
        )
    },
}
"""Optional inputs that are never given."""


def _complaints(op_type: str) -> dict[str, set[str]]:
    schema = schemas()[op_type]
    values: dict[str, set[str]] = defaultdict(set)
    given: dict[str, set[bool]] = defaultdict(set)
    for number in range(MANY):
        case = sample(op_type, SEED, number)
        for name, attribute in schema.attributes.items():
            default = attribute.default_value
            standard = onnx.helper.get_attribute_value(default) if default.type else None
            standard = standard.decode() if isinstance(standard, bytes) else standard
            values[name].add(str(case.attributes.get(name, standard)))
        if schema.schema.max_input != UNCOUNTED:
            for i, formal in enumerate(schema.schema.inputs):
                if "Optional" in str(formal.option):
                    given[formal.name].add(i < len(case.inputs) and case.inputs[i] is not None)
    return {
        "unvaried": {f"{op_type}.{name}" for name, found in values.items() if len(found) < 2},
        "always": {f"{op_type}.{name}" for name, found in given.items() if found == {True}},
        "never": {f"{op_type}.{name}" for name, found in given.items() if found == {False}},
    }


@pytest.mark.parametrize("op_type", draws())
def test_draws__many__vary_every_attribute_and_optional_input_but_those_listed(op_type: str) -> None:
    found = _complaints(op_type)
    for what, listed in (("unvaried", UNVARIED), ("always", ALWAYS), ("never", NEVER)):
        assert found[what] == {name for name in listed if name.startswith(f"{op_type}.")}, what


@pytest.mark.parametrize("numbers", [NATIVE, (*GPU, *SOFTWARE)], ids=["native", "gpu"])
def test_samples__of_all_operators__are_at_least_500_different_ones(numbers: Iterable[int]) -> None:
    seen = set()
    for op_type in draws():
        for number in numbers:
            case = sample(op_type, SEED, number)
            inputs = [None if x is None else (x.dtype.name, x.shape, x.tobytes()) for x in case.inputs]
            seen.add((op_type, repr(inputs), repr(sorted(case.attributes.items())), case.outputs))
    assert len(seen) >= 500
