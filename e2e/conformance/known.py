"""Known failures: strict lists with a reason each, one TOML file per suite.

A case that fails and is not listed fails the run. So do a listed case that passes, unless by chance, and a listed name
that is no case.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

__all__ = ["Known", "known_failures", "verdict"]

FOLDER = Path(__file__).parent / "known_failures"


@dataclass(frozen=True)
class Known:
    """Why a case fails, and whether it may pass by chance (random numbers)."""

    reason: str
    by_chance: bool = False


@lru_cache
def known_failures(suite: str) -> Mapping[str, Known]:
    """The list of `suite`: case name to reason.

    Raises:
        ValueError: a case listed twice, or a reason left out.
    """
    found: dict[str, Known] = {}
    for entry in tomllib.loads((FOLDER / f"{suite}.toml").read_text()).get("failures", []):
        known = Known(entry["reason"].strip(), entry.get("by_chance", False))
        if not known.reason:
            raise ValueError(f"{suite}.toml: {entry['tests']} have no reason")
        for name in entry["tests"]:
            if name in found:
                raise ValueError(f"{suite}.toml lists {name} twice")
            found[name] = known
    return found


def verdict(results: Mapping[str, str], known: Mapping[str, Known]) -> str:
    """How `results` (case name to what is wrong, or nothing) differ from the list; nothing where they do not."""
    unlisted = [f"{n}: {wrong}" for n, wrong in results.items() if wrong and n not in known]
    passing = [n for n, wrong in results.items() if not wrong and n in known and not known[n].by_chance]
    foreign = [n for n in known if n not in results]
    parts = [
        *_lines("fail and are not listed as known failures", unlisted),
        *_lines("are listed as known failures and pass: take them off the list", passing),
        *_lines("are listed and are no cases of this suite", foreign),
    ]
    return "\n".join(parts)


def _lines(title: str, names: list[str]) -> list[str]:
    return [f"{len(names)} {title}:", *(f"  {n}" for n in names)] if names else []
