"""The sampler's graph against its formula in NumPy, onnxruntime, and the distribution it promises."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyruntime
from pyruntime.generate.sampling import EVERY, SamplerOptions, sampler_model
from pyruntime.ir import Array


def processed(x: Array, counts: Array, v: dict[str, Any]) -> Array:
    """Logits after penalties, in float64."""
    x = np.where(counts != 0, np.where(x < 0, x * v["repetition"], x / v["repetition"]), x.astype(np.float64))
    return np.asarray(x - v["frequency"] * np.maximum(counts, 0) - v["presence"] * (counts > 0))


def kept(x: Array, v: dict[str, Any]) -> Array:
    """The distribution after temperature, top-k, top-p and min-p, in the words of transformers' warpers: [vocab]."""
    x = x / v["temperature"]
    if v["top_k"]:
        x = np.where(x < np.sort(x)[-min(v["top_k"], len(x))], -np.inf, x)
    p = np.exp(x - x.max())
    p /= p.sum()
    ascending = np.argsort(p, kind="stable")
    drop = np.cumsum(p[ascending]) <= 1 - v["top_p"]
    drop[-1] = False
    p[ascending[drop]] = 0
    p[p < v["min_p"] * p.max()] = 0
    return np.asarray(p / p.sum())


VALUES = {
    "temperature": 0.8,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition": 1.0,
    "presence": 0.0,
    "frequency": 0.0,
}
SETTINGS = [
    {},
    {"top_k": 5},
    {"top_k": 1},
    {"top_p": 0.7},
    {"top_p": 1e-6},
    {"min_p": 0.1},
    {"top_k": 40, "top_p": 0.9, "min_p": 0.02, "temperature": 1.3},
    {"repetition": 1.3, "presence": 0.4, "frequency": 0.2, "top_k": 20},
    {"repetition": 0.7, "top_p": 0.95},
]


def feeds(
    rng: np.random.Generator, batch: int, words: int, v: dict[str, Any], options: SamplerOptions
) -> dict[str, Any]:
    logits = rng.normal(0, 3, (batch, 3, words)).astype(options.dtype)
    made: dict[str, Any] = {"logits": logits}
    if options.rows:
        made["row"] = rng.integers(0, 3, batch)
    if not options.greedy:
        made["uniform"] = rng.random(batch, np.float32)
        made |= {k: np.float32(v[k]) for k in ("temperature", "min_p")}
    if options.candidates and not options.greedy:
        made |= {"top_k": np.int64(v["top_k"]), "top_p": np.float32(v["top_p"])}
    if options.penalties:
        made |= {k: np.float32(v[k]) for k in ("repetition", "presence", "frequency")}
        made["counts"] = rng.integers(-1, 4, (batch, words)).astype(np.int32)
    if options.mask:
        made["mask"] = rng.random((batch, words)) < 0.5
    return {k: np.asarray(v) for k, v in made.items()}


def answers(given: dict[str, Any], v: dict[str, Any]) -> list[tuple[Array, Array]]:
    """For each sequence: the distribution, and log softmax of the logits themselves."""
    made = []
    for b, rows in enumerate(given["logits"].astype(np.float64)):
        own = rows[given["row"][b]] if "row" in given else rows[-1]
        x = processed(own, given["counts"][b], v) if "counts" in given else own
        if "mask" in given:
            x = np.where(given["mask"][b], x, -np.inf)
        made.append((kept(x, v), own - own.max() - np.log(np.exp(own - own.max()).sum())))
    return made


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("extra", [False, True])
def test_sampler__any_settings__draws_what_the_formula_keeps(setting: dict[str, Any], dtype: str, extra: bool) -> None:
    v = VALUES | setting
    penalties = extra or bool({"repetition", "presence", "frequency"} & set(setting))
    options = SamplerOptions(dtype=dtype, candidates=EVERY, penalties=penalties, mask=extra, rows=extra)
    model = sampler_model(options)
    session = pyruntime.InferenceSession(model)
    oracle = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    names = [o.name for o in session.get_outputs()]
    for _ in range(20):
        given = feeds(rng, 3, 97, v, options)
        got = dict(zip(names, session.run(None, given), strict=True))
        theirs = dict(zip(names, oracle.run(None, given), strict=True))
        np.testing.assert_array_equal(got["ids"], theirs["ids"])
        np.testing.assert_allclose(got["log_probability"], theirs["log_probability"], 1e-4, 1e-4)
        for b, (p, log_p) in enumerate(answers(given, v)):
            token = int(got["ids"][b, 0])
            assert p[token] > 0
            order = np.argsort(-p, kind="stable")
            sums, at = np.cumsum(p[order]), int(np.flatnonzero(order == token)[0])
            assert sums[at] - p[token] - 1e-3 <= given["uniform"][b] <= sums[at] + 1e-3
            assert got["log_probability"][b, 0] == pytest.approx(log_p[token], abs=1e-4)
        if penalties:
            expected = given["counts"].copy()
            for b, token in enumerate(got["ids"][:, 0]):
                expected[b, token] = max(expected[b, token], 0) + 1
            np.testing.assert_array_equal(got["counts_out"], expected)


def test_greedy__equal_logits__the_first() -> None:
    session = pyruntime.InferenceSession(sampler_model(SamplerOptions(greedy=True, log_probability=False)))
    (ids,) = session.run(None, {"logits": np.array([[[0, 9, 9, 1]], [[3, 2, 1, 0]]], np.float32)})
    assert ids.tolist() == [[1], [0]]


@pytest.mark.parametrize("ids", ["int64", "int32"])
@pytest.mark.parametrize("options", [{"greedy": True}, {"candidates": 64}, {"penalties": True}], ids=str)
@pytest.mark.parametrize("top", [1, 5, 200])
def test_top__of_logits_before_penalties__the_likeliest_in_order(ids: str, options: dict[str, Any], top: int) -> None:
    made = SamplerOptions(top=top, ids=ids, **options)
    model = sampler_model(made)
    session = pyruntime.InferenceSession(model)
    oracle = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    given = feeds(np.random.default_rng(2), 2, 97, VALUES | {"repetition": 1.5}, made)
    names = [o.name for o in session.get_outputs()]
    got = dict(zip(names, session.run(None, given), strict=True))
    theirs = dict(zip(names, oracle.run(None, given), strict=True))
    assert got["ids"].dtype == theirs["ids"].dtype == ids
    np.testing.assert_array_equal(got["ids"], theirs["ids"])
    logits = given["logits"][:, -1].astype(np.float64)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :top]
    np.testing.assert_array_equal(got["top_ids"], order)
    np.testing.assert_array_equal(theirs["top_ids"], order)
    shifted = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(got["top_log_probabilities"], np.take_along_axis(shifted, order, 1), atol=1e-4)


def quantile(freedom: int) -> float:
    """What a chi-square variable exceeds once in 10,000 times, within 1 % (Wilson and Hilferty, 1931)."""
    part = 2 / (9 * freedom)
    return freedom * (1 - part + 3.719 * math.sqrt(part)) ** 3


@pytest.mark.parametrize(
    ("candidates", "setting"),
    [
        (n, s)
        for n in (0, 64, EVERY)
        for s in ({}, {"top_k": 10, "top_p": 0.9}, {"min_p": 0.05})
        if n or "top_k" not in s
    ],
    ids=str,
)
def test_sampler__many_draws__chi_square(candidates: int, setting: dict[str, Any]) -> None:
    v, words, draws = VALUES | setting, 40, 20_000
    options = SamplerOptions(candidates=candidates, log_probability=False)
    rng = np.random.default_rng(2)
    given = feeds(rng, 1, words, v, options)
    given["logits"] = np.repeat(rng.normal(0, 1, (1, 1, words)).astype(np.float32), draws, 0)
    given["uniform"] = rng.random(draws, np.float32)
    (ids,) = pyruntime.InferenceSession(sampler_model(options)).run(None, given)
    p = kept(given["logits"][0, 0].astype(np.float64), v)
    seen = np.bincount(ids[:, 0], minlength=words)
    assert not seen[p == 0].any()
    expected = p[p > 0] * draws
    statistic = (((seen[p > 0] - expected) ** 2) / expected).sum()
    assert statistic < quantile(len(expected) - 1)


@pytest.mark.parametrize("candidates", [0, 8, EVERY])
@pytest.mark.parametrize("uniform", [0.0, np.nextafter(np.float32(1), np.float32(0)), 1.0])
def test_sampler__draws_at_the_ends__a_token_that_is_kept(candidates: int, uniform: float) -> None:
    options = SamplerOptions(candidates=candidates, mask=True)
    given = feeds(np.random.default_rng(3), 2, 8, VALUES, options)
    given["uniform"][:] = uniform
    given["mask"] = np.zeros((2, 8), bool)
    given["mask"][:, [2, 5]] = True
    ids = pyruntime.InferenceSession(sampler_model(options)).run(["ids"], given)[0]
    assert set(ids[:, 0].tolist()) <= {2, 5}


@pytest.mark.parametrize(
    "bad",
    [SamplerOptions(dtype="int8"), SamplerOptions(candidates=-2), SamplerOptions(top=-1), SamplerOptions(ids="int8")],
)
def test_sampler__options_out_of_range__are_refused(bad: SamplerOptions) -> None:
    with pytest.raises(pyruntime.InvalidArgument, match="sampler_model: expected"):
        sampler_model(bad)
