"""How group normalisation is split."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target, inp, out
from pyruntime.kernels.rows.groups import Groups, normalize_groups

NVIDIA = Target(Limits(storage_buffers=10, workgroup_bytes=49152, invocations=1024), vendor="nvidia")


def kernels(target: Target, rows: int, length: int) -> list[str]:
    x = TensorType(DType.FLOAT, (1, rows, length))
    made = normalize_groups(target, out(0, x), inp(0, x), Groups(rows, 1e-5))
    return [d.kernel.name.split("_")[1] for d in made]


@pytest.mark.parametrize(
    ("rows", "length", "expected"),
    [
        (4, 1 << 20, ["moments", "spread"]),
        (64, 65536, ["moments", "spread"]),
        (1, 8193, ["moments", "spread"]),
        (32, 4096, ["groups"]),
        (512, 65536, ["groups"]),
        (2, 0, ["groups"]),
    ],
)
def test_normalize_groups__rows_and_lengths__few_long_rows_are_shared(
    rows: int, length: int, expected: list[str]
) -> None:
    assert kernels(NVIDIA, rows, length) == expected


def test_normalize_groups__switched_off_or_software__one_pass() -> None:
    assert kernels(replace(NVIDIA, disabled=frozenset({"normalize_split"})), 4, 1 << 20) == ["groups"]
    assert kernels(replace(NVIDIA, vendor="google"), 4, 1 << 20) == ["groups"]
