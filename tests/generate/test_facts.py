"""What JavaScript is told of a decoder's graph."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import pyruntime
from pyruntime.generate.facts import decoder_facts
from pyruntime.generate.trimming import LocalCaches
from pyruntime.session.run.expected_runs import CHUNK
from tests.contrib.decoder import decoder

NAMES = {"mask": "attention_mask", "positions": "position_ids", "others": ["input_ids", "num_logits_to_keep"]}
ENTRY = json.dumps({"staying": None, "text": True, "names": NAMES})


def facts(**form: Any) -> Any:
    session = pyruntime.InferenceSession(decoder(**form).model)
    return json.loads(json.dumps(decoder_facts(session._model.graph, ENTRY)))


def test_facts__of_local_attention__have_angles_of_the_rows_that_go() -> None:
    found = facts(local=(5, 12), positions=48)
    local = found["local"]
    assert (found["positions"], found["rows"]) == (48, {})
    assert (local["kept"], local["chunk"], local["drop"]) == (11, 18, 13)
    (turn,) = local["turns"]
    assert turn["caches"] == ["past.0.key", "past.1.key"]
    angles = 13 / 10000 ** (np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(turn["cos"], np.cos(angles), atol=1e-6)
    np.testing.assert_allclose(turn["sin"], np.sin(angles), atol=1e-6)
    assert turn["interleaved"] is False
    assert facts(local=12, positions=48, interleaved=True, placed=True)["local"]["turns"][0]["interleaved"] is True


@pytest.mark.parametrize("form", [{}, {"local": (12, -1)}, {"local": 48, "positions": 48}], ids=str)
def test_facts__of_attention_that_looks_further__are_positions_alone(form: dict[str, Any]) -> None:
    assert facts(**form) == {"positions": form.get("positions", 128), "rows": {}, "local": None}


def test_facts__of_caches_of_a_window__are_their_rows() -> None:
    found = facts(local=(12, -1), windowed=True)
    assert found == {"positions": 128, "rows": {"past.0.key": 12, "past.0.value": 12}, "local": None}


@pytest.mark.parametrize("entry", ["", '{"staying": null, "text": true}'])
def test_facts__that_are_not_requested__are_none(entry: str) -> None:
    graph = pyruntime.InferenceSession(decoder().model)._model.graph
    assert decoder_facts(graph, entry) is None


def test_steps__of_any_window_and_table__stay_within_positions() -> None:
    for window in range(1, 40):
        for positions in range(window + 1, 3 * window + 5):
            local = LocalCaches(window, positions, {})
            drop, chunk = local.steps(CHUNK)
            assert drop >= 1 and 1 <= chunk <= CHUNK
            assert local.kept + drop - 1 + chunk <= positions
            assert drop < positions, "there are angles for it"
