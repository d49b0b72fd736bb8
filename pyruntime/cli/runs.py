"""Commands that run models, on a GPU if there is one."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from pyruntime.cli.progress import Progress, showing_progress
from pyruntime.cli.sessions import feeds_of, session_of
from pyruntime.errors import InvalidArgument
from pyruntime.session import RunOptions
from pyruntime.session.markup import text_table

__all__ = ["bench", "explain", "profile", "run"]


def _options(progress: Progress) -> RunOptions:
    options = RunOptions()
    options.on_progress = progress.running
    return options


def run(arguments: argparse.Namespace) -> tuple[Any, str]:
    """Run once and print the outputs."""
    with showing_progress() as progress:
        session = session_of(arguments, progress)
        names = [a.name for a in session.get_outputs()]
        began = time.perf_counter()
        values = session.run(names, feeds_of(session, arguments), _options(progress))
        seconds = time.perf_counter() - began
    outputs = dict(zip(names, values, strict=True))
    if arguments.save:
        arrays: dict[str, Any] = {k: np.asarray(v) for k, v in outputs.items()}
        np.savez(arguments.save, **arrays)
    parts = []
    for name, value in outputs.items():
        kind = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        parts.append(
            f"{name}: {kind}\n{np.array2string(value, threshold=20) if isinstance(value, np.ndarray) else value}"
        )
    parts.append(f"{1000 * seconds:.3f} ms on {session.get_providers()[0]}")
    return {"outputs": outputs, "ms": 1000 * seconds, "provider": session.get_providers()[0]}, "\n\n".join(parts)


def bench(arguments: argparse.Namespace) -> tuple[Any, str]:
    """Measure run times."""
    began = time.perf_counter()
    with showing_progress() as progress:
        session = session_of(arguments, progress)
    created = time.perf_counter() - began
    feeds, seconds = feeds_of(session, arguments), list[float]()
    for _ in range(1 + max(1, arguments.runs)):
        began = time.perf_counter()
        session.run(None, feeds)
        seconds.append(time.perf_counter() - began)
    first, *rest = (1000 * s for s in seconds)
    data = {"create_ms": 1000 * created, "first_ms": first, "median_ms": float(np.median(rest)), "least_ms": min(rest)}
    where = session.summary()["adapter"] or {}
    device = where.get("device") or where.get("description") or session.get_providers()[0]
    rows = [(name.removesuffix("_ms").replace("_", " "), f"{ms:.3f}") for name, ms in data.items()]
    return {**data, "provider": session.get_providers()[0], "device": device}, text_table((device, "ms"), rows)


def profile(arguments: argparse.Namespace) -> tuple[Any, str]:
    """Measure times by kernel and operator."""
    with showing_progress() as progress:
        session = session_of(arguments, progress)
        profile = session.profile(feeds_of(session, arguments), arguments.runs)
    return profile.to_dict(), str(profile)


def explain(arguments: argparse.Namespace) -> tuple[Any, str]:
    """Run once and show the session's explanation."""
    with showing_progress() as progress:
        session = session_of(arguments, progress)
        session.run(None, feeds_of(session, arguments), _options(progress))
    explanation = session.explain()
    if arguments.html:
        try:
            Path(arguments.html).write_text(explanation.html(), encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(f"--html {arguments.html}: {error}") from None
    return session.summary(), str(explanation)
