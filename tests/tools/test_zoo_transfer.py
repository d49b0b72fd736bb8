"""Values of trained models on their way to the browser and back."""

from __future__ import annotations

import asyncio
import io
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e.harness import codec
from tools.devkit.server import Server
from tools.zoo.trained import browser, transfer
from tools.zoo.trained.transfer import packed, unpacked

RUNS: list[list[dict[str, Any]]] = [
    [
        {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "a/b": np.array(3, np.int64)},
        {"x": np.zeros((0, 3), np.float32), "a/b": np.array(-1, np.int64)},
    ],
    [{"steps": np.array([True, False]), "half": np.array([0.5, np.nan], np.float16), "0": np.array(["é", ""])}],
    [{}],
    [],
]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(browser, "VALUES", tmp_path / "values")
    (tmp_path / "values").mkdir()
    with Server({"/": tmp_path}, handler=browser.Receiver) as server:
        yield server


def put(url: str, data: bytes) -> int:
    with urllib.request.urlopen(urllib.request.Request(url, data, method="PUT")) as answer:
        return int(answer.status)


def same(mine: Any, theirs: Any) -> bool:
    return [[list(step) for step in run] for run in mine] == [[list(step) for step in run] for run in theirs] and all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        for run, other in zip(mine, theirs, strict=True)
        for step, wanted in zip(run, other, strict=True)
        for x, y in zip(step.values(), wanted.values(), strict=True)
    )


def test_packed__each_kind_of_value__is_unpacked_bit_for_bit() -> None:
    assert same(unpacked(io.BytesIO(packed(RUNS))), RUNS)


def test_packed__sequence_of_maps__is_an_array_in_the_order_of_keys() -> None:
    (((step),),) = unpacked(io.BytesIO(packed([[{"y": [{1: 0.25, 0: 0.75}, {1: 1.0, 0: 0.0}]}]])))
    assert step["y"].tolist() == [[0.75, 0.25], [0.0, 1.0]]


def test_packed__values_of_64_mb__take_no_more_than_their_bytes() -> None:
    value = np.arange(1 << 24, dtype=np.float32)
    data = packed([[{"x": value}]])
    assert len(data) < value.nbytes + 2000
    assert np.array_equal(unpacked(io.BytesIO(data))[0][0]["x"], value)


def test_source__in_the_browser__needs_only_itself() -> None:
    source = Path(transfer.__file__).read_text() + "\n[list(map(list, unpacked(io.BytesIO(packed(runs)))[0]))]"
    told = codec.decode(asyncio.run(codec.run(source, codec.encode({"runs": [[{"x": np.ones(2)}]]}))))
    assert told == {"value": [[["x"]]]}


def test_receiver__file_of_values__is_what_was_put(server: Server) -> None:
    (browser.VALUES / "values.npz").write_bytes(packed([]))
    assert put(f"{server.url}values/values.npz", packed(RUNS)) == 204
    with urllib.request.urlopen(f"{server.url}values/values.npz") as answer:
        assert same(unpacked(io.BytesIO(answer.read())), RUNS)


@pytest.mark.parametrize("path", ["other.npz", "values/../other.npz", "values/%2e%2e/other.npz", "valuesother.npz"])
def test_receiver__place_outside_of_values__is_forbidden(server: Server, tmp_path: Path, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        put(server.url + path, b"data")
    assert [p.name for p in tmp_path.iterdir()] == ["values"]


def test_server__put_without_receiver__is_not_supported(tmp_path: Path) -> None:
    with Server({"/": tmp_path}) as server, pytest.raises(urllib.error.HTTPError, match="501"):
        put(f"{server.url}values.npz", b"data")
