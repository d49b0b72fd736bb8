"""Which adapter is chosen."""

from __future__ import annotations

import pytest

from pyruntime.device.desktop.adapters import Adapter, Choice, choose
from pyruntime.errors import EPFail, InvalidArgument

INTEGRATED = Adapter(0, "integrated", "Vulkan", "intel", "xe", "Intel Iris Xe", "")
DISCRETE = Adapter(1, "discrete", "Vulkan", "nvidia", "", "NVIDIA H200", "")
SOFTWARE = Adapter(2, "software", "Vulkan", "mesa", "", "llvmpipe (LLVM 15)", "")
ALL = [INTEGRATED, DISCRETE, SOFTWARE]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, DISCRETE),
        ({"power_preference": "low-power"}, INTEGRATED),
        ({"adapter": "2"}, SOFTWARE),
        ({"adapter": "software"}, SOFTWARE),
        ({"adapter": "Iris"}, INTEGRATED),
        ({"adapter": "vulkan"}, DISCRETE),
    ],
)
def test_choose__options__adapter(options: dict[str, str], expected: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYRUNTIME_ADAPTER", raising=False)
    assert choose(ALL, Choice.of(options)) is expected


def test_choose__environment__counts_where_options_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYRUNTIME_ADAPTER", "llvmpipe")
    assert choose(ALL, Choice.of({})) is SOFTWARE
    assert choose(ALL, Choice.of({"adapter": "nvidia"})) is DISCRETE


def test_choose__software_adapter_alone__is_refused_unless_asked_for() -> None:
    with pytest.raises(EPFail, match=r"used when asked for: set PYRUNTIME_ADAPTER=software.*llvmpipe"):
        choose([SOFTWARE], Choice())
    assert choose([SOFTWARE], Choice("software")) is SOFTWARE


def test_choose__unknown_name__says_which_there_are() -> None:
    with pytest.raises(EPFail, match=r"no adapter is 'radeon'; there are: 0: Intel Iris Xe \(integrated, Vulkan\)"):
        choose(ALL, Choice("radeon"))


def test_choice__unknown_power_preference__is_refused() -> None:
    with pytest.raises(InvalidArgument, match="power_preference is 'fast'"):
        Choice.of({"power_preference": "fast"})
