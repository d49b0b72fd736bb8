"""Pre-tokenizers of tokenizer.json, which split text into pieces for the model.

Source: huggingface/tokenizers, file format.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyruntime.errors import NotImplemented
from pyruntime.generate.tokens.normalizers import byte_alphabet
from pyruntime.generate.tokens.patterns import category_ranges, compiled

__all__ = ["PreTokenizer", "pre_tokenizer"]

PreTokenizer = Callable[[list[str], bool], list[str]]
"""Splits pieces into smaller ones; the flag says whether the first piece starts the text."""

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _split(text: str, pattern: re.Pattern[str], behavior: str, invert: bool = False) -> list[str]:
    """Split a text at the matches of a pattern; empty pieces are left out."""
    parts: list[tuple[str, bool]] = []
    at = 0
    for match in pattern.finditer(text):
        if match.end() == match.start():
            continue
        parts += [(text[at : match.start()], invert), (match[0], not invert)]
        at = match.end()
    parts = [(part, hit) for part, hit in (*parts, (text[at:], invert)) if part]
    made: list[str] = []
    before = False
    for part, hit in parts:
        if hit and behavior == "Removed":
            before = hit
            continue
        joins = (behavior == "Contiguous" and hit == before) or (
            behavior == "MergedWithPrevious" and hit and not before
        )
        joins = joins or (behavior == "MergedWithNext" and before and not hit)
        if joins and made:
            made[-1] += part
        else:
            made.append(part)
        before = hit
    return made


def _each(cut: Callable[[str], list[str]]) -> PreTokenizer:
    return lambda pieces, first: [part for piece in pieces for part in cut(piece)]


def _byte_level(spec: dict[str, Any]) -> PreTokenizer:
    alphabet = byte_alphabet()
    pattern = compiled(_GPT2)

    def cut(piece: str) -> list[str]:
        if spec.get("add_prefix_space", True) and not piece.startswith(" "):
            piece = f" {piece}"
        parts = _split(piece, pattern, "Isolated") if spec.get("use_regex", True) else [piece]
        return ["".join(alphabet[b] for b in part.encode()) for part in parts]

    return _each(cut)


def _metaspace(spec: dict[str, Any]) -> PreTokenizer:
    mark = spec.get("replacement", "▁")
    scheme = spec.get("prepend_scheme") or ("always" if spec.get("add_prefix_space", True) else "never")
    pattern = re.compile(re.escape(mark))

    def run(pieces: list[str], first: bool) -> list[str]:
        made: list[str] = []
        for i, piece in enumerate(pieces):
            piece = piece.replace(" ", mark)
            if scheme == "always" or (scheme == "first" and first and i == 0):
                piece = piece if piece.startswith(mark) else mark + piece
            made += _split(piece, pattern, "MergedWithNext") if spec.get("split", True) else [piece]
        return made

    return run


def _punctuation() -> re.Pattern[str]:
    return re.compile(f"[!-/:-@\\[-`{{-~{category_ranges('P')}]")


def _bert(piece: str) -> list[str]:
    words = _split(piece, compiled(r"\s"), "Removed")
    return [part for word in words for part in _split(word, _punctuation(), "Isolated")]


def _pattern(spec: dict[str, Any]) -> re.Pattern[str]:
    pattern = spec["pattern"]
    return re.compile(re.escape(pattern["String"])) if "String" in pattern else compiled(pattern["Regex"])


def pre_tokenizer(spec: dict[str, Any] | None) -> PreTokenizer:
    """Return the pre-tokenizer that tokenizer.json describes. Raises NotImplemented: unknown kind."""
    if spec is None:
        return lambda pieces, first: pieces
    kind = spec["type"]
    if kind == "Sequence":
        parts = [pre_tokenizer(part) for part in spec["pretokenizers"]]

        def run(pieces: list[str], first: bool) -> list[str]:
            for part in parts:
                before, pieces = pieces, part(pieces, first)
                first = first and bool(before and pieces) and before[0][:1] == pieces[0][:1]
            return pieces

        return run
    if kind == "ByteLevel":
        return _byte_level(spec)
    if kind == "Metaspace":
        return _metaspace(spec)
    if kind == "Split":
        pattern, behavior, invert = _pattern(spec), spec["behavior"], spec.get("invert", False)
        return _each(lambda piece: _split(piece, pattern, behavior, invert))
    if kind == "Digits":
        each = "Isolated" if spec.get("individual_digits") else "Contiguous"
        return _each(lambda piece: _split(piece, compiled(r"\p{N}"), each))
    if kind == "Punctuation":
        return _each(lambda piece: _split(piece, _punctuation(), spec.get("behavior", "Isolated")))
    if kind == "CharDelimiterSplit":
        return _each(lambda piece: _split(piece, re.compile(re.escape(spec["delimiter"])), "Removed"))
    if kind == "Whitespace":
        return _each(_words)
    plain = {"BertPreTokenizer": _bert, "WhitespaceSplit": lambda p: _split(p, compiled(r"\s+"), "Removed")}
    if kind not in plain:
        raise NotImplemented(
            f"tokenizer.json: the pre-tokenizer {kind!r} is not supported; install the tokenizers wheel"
        )
    return _each(plain[kind])


def _words(piece: str) -> list[str]:
    """Split into runs of word characters, and runs of other characters that are not spaces."""
    word = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\u200c\u200d\u24b6-\u24e9"
    return compiled(rf"[{word}]+|[^{word}\s]+").findall(piece)
