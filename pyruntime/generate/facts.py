"""Facts about a decoder's graph for generation in JavaScript (web/text/), also stored in cached plans."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from pyruntime.generate.positions import positions_of
from pyruntime.generate.trimming import local_caches, window_caches
from pyruntime.ir.constant import Constant
from pyruntime.ir.graph import Graph
from pyruntime.ir.types import TensorType
from pyruntime.session import InferenceSession
from pyruntime.session.base import Internals
from pyruntime.session.load.loading import when_there
from pyruntime.session.run.expected_runs import CHUNK

__all__ = ["decoder_facts", "facts_of", "facts_of_graph"]


async def facts_of(session: InferenceSession) -> dict[str, Any] | None:
    """Return the `decoder_facts` of a session, by its options. Waits for tables that are still loading."""
    graph = Internals(session).model.graph

    async def read() -> dict[str, Any] | None:
        return decoder_facts(graph, session.get_session_options().config("pyruntime.expects"))

    return await when_there(read)


def facts_of_graph(graph: Graph) -> dict[str, Any] | None:
    """Return `decoder_facts` of a decoder whose inputs have the names of transformers.js and onnxruntime-genai."""
    caches = re.compile(r"(past|cache)")
    others = [v.name for v in graph.inputs if not caches.search(v.name)]
    return decoder_facts(
        graph, json.dumps({"names": {"mask": "attention_mask", "positions": "position_ids", "others": others}})
    )


def decoder_facts(graph: Graph, entry: str) -> dict[str, Any] | None:
    """Return `DecoderFacts` of web/text/local.js; None if the session's options do not request them.

    Args:
        entry: the session config entry `pyruntime.expects`. Its `names` are the names of the inputs `mask` and
            `positions`, and of `others` that are not caches.
    """
    names = json.loads(entry).get("names") if entry else None
    if not names:
        return None
    mask, positions = names["mask"], names["positions"]
    others = {mask, positions, *names["others"]}
    rows = window_caches(graph)
    caches = {v.name: "" for v in graph.inputs if v.name not in others}
    local = None if rows else local_caches(graph, caches, mask, positions)
    made: dict[str, Any] = {"positions": positions_of(graph, positions), "rows": rows, "local": None}
    if local:
        drop, chunk = local.steps(CHUNK)
        turns: dict[Any, dict[str, Any]] = {}
        for name, turn in local.turns.items():
            tables = {"cos": _row(turn.cos, drop), "sin": _row(turn.sin, drop), "interleaved": turn.interleaved}
            turns.setdefault(json.dumps(tables), tables | {"caches": []})["caches"].append(name)
        made["local"] = {"kept": local.kept, "drop": drop, "chunk": chunk, "turns": list(turns.values())}
    return made


def _row(table: Constant, at: int) -> list[float]:
    """Read one row of a table [rows, n], without reading the others."""
    width = table.type.shape[1]
    kind = TensorType(table.type.dtype, (1, width))
    row = Constant(kind, table.source, table.offset + at * kind.nbytes).numpy()
    return [float(x) for x in np.asarray(row[0], np.float64)]
