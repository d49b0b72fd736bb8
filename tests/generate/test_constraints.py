"""Constraints: what they let through parses, keeps to the schema and matches `re`, in time, whatever the logits say."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import numpy as np
import pytest

import pyruntime
from pyruntime.generate.constraints import GrammarConstraint, TokenTable, constraint_of
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions
from tests.contrib.decoder import decoder

CHARACTERS = [chr(c) for c in range(32, 127)] + ["\n", "é", "日", "😀"]
TOKENS = [
    "",
    *CHARACTERS,
    '{"',
    '":',
    '",',
    "true",
    "null",
    '"}',
    "12",
    "-1",
    "abc",
    " a",
    "]}",
    "],",
    "[1",
    '\\"',
    "0.5",
    "e+",
]
TABLE = TokenTable([None, *TOKENS[1:]], [0])

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8},
        "age": {"type": "integer"},
        "mail": {"type": "string", "pattern": "^[a-z]{1,5}@[a-z]+\\.(com|org)$"},
        "tags": {"type": "array", "items": {"enum": ["a", "b", 3, None]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "tags"],
}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"v": {"type": "number"}, "kids": {"items": {"$ref": "#/$defs/node"}}},
            "required": ["v", "kids"],
        }
    },
    "$ref": "#/$defs/node",
}


def sample(constraint: GrammarConstraint, rng: np.random.Generator, remaining: int) -> str:
    """Text of tokens drawn by random logits from what the constraint allows, until it ends."""
    own, made = constraint.copy(), list[str]()
    for left in range(remaining, 0, -1):
        allowed = np.flatnonzero(own.mask(left))
        token = int(rng.choice(allowed))
        own.accept(token)
        if token == 0:
            return "".join(made)
        made.append(TOKENS[token])
    raise AssertionError(f"it did not end: {''.join(made)}")


def is_person(value: Any) -> bool:
    return (
        list(value) == [k for k in PERSON["properties"] if k in value]
        and 1 <= len(value["name"]) <= 8
        and isinstance(value.get("age", 0), int)
        and re.fullmatch(r"[a-z]{1,5}@[a-z]+\.(com|org)", value.get("mail", "a@b.com")) is not None
        and 1 <= len(value["tags"]) <= 3
        and all(t in ("a", "b", 3, None) for t in value["tags"])
    )


def is_tree(value: Any) -> bool:
    return set(value) == {"v", "kids"} and isinstance(value["v"], int | float) and all(map(is_tree, value["kids"]))


@pytest.mark.parametrize(
    ("schema", "holds"), [({}, lambda v: True), (PERSON, is_person), (TREE, is_tree)], ids=["any", "person", "tree"]
)
def test_json__a_thousand_samples_of_random_logits__parse(schema: Any, holds: Any) -> None:
    constraint = constraint_of("json_schema", json.dumps(schema), TABLE)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(1000):
        written = sample(constraint, rng, int(rng.integers(60, 120)))
        assert holds(json.loads(written)), written
        seen.add(written)
    assert len(seen) > 100


PATTERNS = [
    r"[A-Z]\w+( \d{1,3})*",
    r"(?:ab|a[^b\n]?c){2,4}x*",
    r"^\d{4}-[01]\d-[0-3]\d$",
    r"(yes|no|may(be)?)\.?",
    r"\"[^\"\\]*\"",
    r"a+?b{2,}[\]x-]",
    r"\(\$\x41\u00e9",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_regex__samples_and_texts__as_re_says(pattern: str) -> None:
    constraint = constraint_of("regex", pattern, TABLE)
    rng = np.random.default_rng(1)
    plain = random.Random(1)
    for _ in range(100):
        written = sample(constraint, rng, 60)
        assert re.fullmatch(pattern, written, re.ASCII), written
        changed = list(written)
        for _ in range(plain.randrange(3)):
            changed[plain.randrange(len(changed))] = plain.choice(CHARACTERS)
        automaton = constraint._automaton
        got = automaton.ends(automaton.walk(automaton.start, "".join(changed)))
        assert got == bool(re.fullmatch(pattern, "".join(changed), re.ASCII)), changed


PAIR = {
    "type": "object",
    "properties": {
        "v": {"type": "number"},
        "kids": {"type": "array", "items": {"enum": ["b", 3, None]}, "maxItems": 3},
    },
    "required": ["v", "kids"],
}


def is_pair(value: Any) -> bool:
    return set(value) == {"v", "kids"} and isinstance(value["v"], int | float) and set(value["kids"]) <= {"b", 3, None}


@pytest.mark.parametrize(
    ("schema", "holds", "calls"),
    [({}, lambda v: True, 30), (TREE, is_tree, 40), (PAIR, is_pair, 30)],
    ids=["any", "tree", "pair"],
)
def test_json__a_thousand_samples_of_a_decoder__parse(schema: Any, holds: Any, calls: int) -> None:
    """Random weights, ten sequences at once: each ends in time, as the constraint knows how many tokens are left."""
    texts: list[str | None] = [None, *'{}[]":,.-+0123456789eEtrufalsn bckidvyz\\']
    texts += [None] * (50 - len(texts))
    constraint = constraint_of("json_schema", json.dumps(schema), TokenTable(texts, [0]))
    generator = TextGenerator(DecoderModel(pyruntime.InferenceSession(decoder().model)))
    seen = set()
    for seed in range(calls):
        options = GenerationOptions(
            max_new_tokens=30 + seed % 20,
            do_sample=True,
            seed=seed,
            temperature=3.0,
            end_tokens=(0,),
            constraint=constraint,
            num_sequences=10,
        )
        ids: list[list[int]] = [[] for _ in range(10)]
        for piece in generator.generate_sync([3, 1, 2], options):
            ids[piece.sequence].append(piece.id)
        for own in ids:
            assert own[-1] == 0
            written = "".join(texts[id] or "?" for id in own[:-1])
            assert holds(json.loads(written)), written
            seen.add(written)
    assert len(seen) > 50


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("regex", "a(", "ends too early"),
        ("regex", "(?=a)b", "only"),
        ("regex", r"(a)\1", "not supported"),
        ("json_schema", '{"type": "number", "minimum": 3}', "minimum"),
        ("json_schema", '{"$ref": "#/nowhere"}', "points to nothing"),
        ("json_schema", '{"$ref": "#"}', "calls itself|without end"),
        ("json_schema", '{"type": "table"}', "expected a type"),
    ],
)
def test_constraints__what_cannot_be_kept_to__is_refused(kind: str, data: str, expected: str) -> None:
    with pytest.raises((pyruntime.InvalidArgument, pyruntime.NotImplemented), match=expected):
        constraint_of(kind, data, TABLE)


def test_constraints__vocabulary_without_the_characters__says_so() -> None:
    constraint = constraint_of("regex", "ü+", TABLE)
    with pytest.raises(pyruntime.InvalidArgument, match="no token"):
        constraint.mask(10)
