"""Targets by name: the profiles in `profiles/`, and JSON files with the same format."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from pyruntime.errors import InvalidArgument
from pyruntime.target.target import Limits, Target

__all__ = ["profiles", "read_target"]

_PROFILES = Path(__file__).parent / "profiles"

_LEAST = replace(Limits(), uniform_bytes=16 << 10, invocations=128, workgroup_x=128)
"""Limits that WebGPU's compatibility mode guarantees. Source: WebGPU specification, 3.6.2 Limits."""


def profiles() -> list[str]:
    """Return the names of the profiles; 'default' has what every WebGPU device supports."""
    return sorted(path.stem for path in _PROFILES.glob("*.json"))


def read_target(text: str) -> Target:
    """Read a target from a profile (see `profiles`) or a JSON file: `limits` by name, `features`, `vendor`.

    Raises:
        InvalidArgument: there is no such file, or its contents are not a target.
    """
    try:
        known = _PROFILES / f"{text}.json"
        data = json.loads((known if text in profiles() else Path(text)).read_text())
        unknown = data.keys() - {"limits", "features", "vendor", "about", "source"}
        if unknown:
            raise ValueError(f"a target has limits, features, vendor, about and source, not {sorted(unknown)}")
        limits = data.get("limits", {})
        if not all(isinstance(n, int) and n >= getattr(_LEAST, name) for name, n in limits.items()):
            raise ValueError("a limit is a number, at least what WebGPU guarantees in its compatibility mode")
        return Target(Limits(**limits), frozenset(data.get("features", ())), str(data.get("vendor", "")))
    except FileNotFoundError:
        raise InvalidArgument(
            f"--target {text}: neither a file nor one of the profiles {', '.join(profiles())}"
        ) from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"--target {text}: {error}") from None
