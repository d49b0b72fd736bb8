"""What was measured on a device, as data that outlives a visit: its rates, and which kernels won."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from pyruntime.kernels.costs import Rates
from pyruntime.kernels.dispatch import NOBODY, Target, Winners

__all__ = ["Knowledge"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Rates and winners of a device; without any where nothing was measured."""

    rates: Rates | None = None
    winners: Winners = NOBODY

    def of(self, target: Target) -> Target:
        """The target with what is known of it."""
        return replace(target, rates=self.rates, winners=self.winners)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        winners: dict[str, dict[str, str]] = {}
        for (family, problem), name in self.winners.items():
            winners.setdefault(family, {})[problem] = name
        return {"version": _VERSION, "rates": asdict(self.rates) if self.rates else None, "winners": winners}

    @staticmethod
    def from_dict(data: Any) -> Knowledge:
        """What `to_dict` gave.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(data, Mapping) or data.get("version") != _VERSION:
            raise ValueError(f"expected an object with 'version': {_VERSION}")
        winners = data.get("winners") or {}
        if not isinstance(winners, Mapping) or not all(
            isinstance(named, Mapping) and all(isinstance(n, str) for n in named.values()) for named in winners.values()
        ):
            raise ValueError("'winners' must be names by problem, by family")
        flat = {(str(family), str(key)): name for family, named in winners.items() for key, name in named.items()}
        return Knowledge(_rates(data.get("rates")), Winners(flat))


def _rates(data: Any) -> Rates | None:
    if data is None:
        return None
    names = {f.name for f in fields(Rates)}
    if not isinstance(data, Mapping) or set(data) != names:
        raise ValueError(f"'rates' must have {', '.join(sorted(names))}")
    numbers = {name: data[name] for name in names}
    if not all(isinstance(v, int | float) and v >= 0 for v in numbers.values()):
        raise ValueError("'rates' must be numbers that are not negative")
    if not all(numbers[name] > 0 for name in ("units", "resident", "flops", "bandwidth", "direct")):
        raise ValueError("'rates' must have units, resident, flops, bandwidth and direct above 0")
    return Rates(**{**numbers, "units": int(numbers["units"]), "resident": int(numbers["resident"])})
