"""Recordings as texts: each command, buffer and pipeline once, in the places that web/gpu/recording.js reads."""

from __future__ import annotations

import json

from pyruntime.device.base import Bound, Slice, Slot
from pyruntime.device.webgpu.replaying import written


def test_written__commands_of_shared_buffers__counts_each_once() -> None:
    first = Bound("one", (Slice(7, 0, 16), Slice(9, 256, 8)), Slice(11, 512, 32), (1, 2, 3), flops=90)
    second = Bound("two", (Slice(9, 256, 8), Slot(2, 0, 64)), None, (4, 1, 1), "", (0, -1, -1))
    made = written([first, second])
    assert (made.sources, made.buffers) == (["one", "two"], [7, 9, 11])
    assert json.loads(made.text) == {
        "rows": [
            [0, [1, 2, 3], [], [0, 0, 16, 1, 256, 8, 2, 512, 32], 90],
            [1, [4, 1, 1], [0, -1, -1], [1, 256, 8, -3, 0, 64], 0],
        ],
        "order": None,
        "repeated": [],
    }


def test_written__same_command_again__is_one_row_and_an_order() -> None:
    first, second = (Bound(name, (Slice(1, 0, 4),), None, (1, 1, 1)) for name in ("one", "two"))
    data = json.loads(written([first, second] * 3).text)
    assert len(data["rows"]) == 2 and data["order"] == [0, 1] * 3


def test_written__nothing__is_an_empty_recording() -> None:
    made = written([])
    assert (made.buffers, made.sources, json.loads(made.text)) == ([], [], {"rows": [], "order": None, "repeated": []})
