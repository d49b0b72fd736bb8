"""The reader of tokenizer.json against the tokenizers wheel.

data/tokenizers.json.gz has ten small tokenizers of all models, trained on this project's documents, and what tokenizers
0.23.3 made of random texts: characters of Unicode 3.2, since the wheel's tables are of several later versions.
"""

from __future__ import annotations

import gzip
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import pyruntime
from pyruntime.generate.tokenizer import Tokenizer
from pyruntime.generate.tokens.patterns import compiled

KINDS = ["gpt2", "roberta", "llama3", "o200k", "llama2", "bert", "cased", "unigram", "first", "clip"]


@cache
def recorded() -> dict[str, Any]:
    path = Path(__file__).parent / "data" / "tokenizers.json.gz"
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def tokenizer(kind: str) -> Tokenizer:
    return Tokenizer.from_text(json.dumps(recorded()["tokenizers"][kind]["tokenizer"]), own=True)


def test_data__has_every_kind() -> None:
    assert sorted(recorded()["tokenizers"]) == sorted(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_reader__random_unicode__ids_and_texts_of_the_wheel(kind: str) -> None:
    own, expected = tokenizer(kind), recorded()["tokenizers"][kind]
    for i, text in enumerate(recorded()["texts"]):
        ids = own.encode(text)
        assert ids == expected["ids"][i], repr(text)
        assert own.encode(text, add_special_tokens=False) == expected["plain"][i]
        assert own.decode(ids) == expected["text"][i]
        assert own.decode(ids, skip_special_tokens=False) == expected["whole"][i]


@pytest.mark.parametrize("kind", ["gpt2", "llama3", "llama2"])
def test_stream__characters_of_several_tokens__come_whole(kind: str) -> None:
    own = tokenizer(kind)
    text = "größe 日本語 👩‍👩‍👧 x"
    stream = own.stream()
    pieces = [stream.step(i) for i in own.encode(text, add_special_tokens=False)]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces) and "" in pieces


def test_pattern__properties__are_general_categories() -> None:
    assert compiled(r"[^\s\p{L}\p{N}]+|\P{Lu}\p{^L}").findall("a1-— Ab ") == ["a1", "-—", "b "]
    with pytest.raises(pyruntime.NotImplemented, match=r"\\p\{Greek\}"):
        compiled(r"\p{Greek}")


def test_tokenizer__kinds_that_are_not_known__say_so() -> None:
    spec = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "normalizer": {"type": "Precompiled"}}
    with pytest.raises(pyruntime.NotImplemented, match="normalizer 'Precompiled'"):
        Tokenizer.from_text(json.dumps(spec), own=True)


def test_tokenizer__folder_without_file__says_which(tmp_path: Path) -> None:
    with pytest.raises(pyruntime.NoSuchFile, match=r"tokenizer\.json"):
        Tokenizer(tmp_path)


def test_chat_template__without_jinja2__says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2.exceptions", None)
    with pytest.raises(pyruntime.InvalidArgument, match="pip install jinja2"):
        tokenizer("gpt2").apply_chat_template([{"role": "user", "content": "a"}], "{{ messages }}")
    with pytest.raises(pyruntime.InvalidArgument, match="no chat template"):
        tokenizer("gpt2").apply_chat_template([{"role": "user", "content": "a"}])
