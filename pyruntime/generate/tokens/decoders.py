"""Decoders of tokenizer.json: tokens to text. Source: huggingface/tokenizers, format of the file."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyruntime.errors import NotImplemented
from pyruntime.generate.tokens.normalizers import byte_alphabet, replacer

__all__ = ["Decoder", "decoder"]

Decoder = Callable[[list[str]], list[str]]

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_level(tokens: list[str]) -> list[str]:
    values = {c: b for b, c in enumerate(byte_alphabet())}
    made = bytearray()
    for token in tokens:
        found = [values.get(c) for c in token]
        made += token.encode() if None in found else bytes(b for b in found if b is not None)
    return [made.decode("utf-8", "replace")]


def _byte_fallback(tokens: list[str]) -> list[str]:
    made: list[str] = []
    held = bytearray()

    def flush() -> None:
        if held:
            try:
                made.append(held.decode())
            except UnicodeDecodeError:
                made.extend("\ufffd" for _ in held)
            held.clear()

    for token in tokens:
        match = _BYTE.fullmatch(token)
        if match:
            held.append(int(match[1], 16))
        else:
            flush()
            made.append(token)
    flush()
    return made


def _metaspace(spec: dict[str, Any]) -> Decoder:
    mark = spec.get("replacement", "▁")
    scheme = spec.get("prepend_scheme") or ("always" if spec.get("add_prefix_space", True) else "never")

    def run(tokens: list[str]) -> list[str]:
        made = []
        for i, token in enumerate(tokens):
            cut = i == 0 and scheme != "never" and token.startswith(mark)
            made.append((token[len(mark) :] if cut else token).replace(mark, " "))
        return made

    return run


def cleaned(text: str) -> str:
    """Remove spaces before punctuation and contractions."""
    for old in (" .", " ?", " !", " ,"):
        text = text.replace(old, old[1:])
    text = text.replace(" ' ", "'")
    for old, new in (
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ):
        text = text.replace(old, new)
    return text


def _word_piece(spec: dict[str, Any]) -> Decoder:
    prefix = spec.get("prefix", "##")

    def one(i: int, token: str) -> str:
        if i:
            token = token.removeprefix(prefix) if token.startswith(prefix) else f" {token}"
        return cleaned(token) if spec.get("cleanup", True) else token

    return lambda tokens: [one(i, t) for i, t in enumerate(tokens)]


def _strip(spec: dict[str, Any]) -> Decoder:
    content, start, stop = spec["content"], spec["start"], spec["stop"]

    def one(token: str) -> str:
        begin, end = 0, len(token)
        while begin < min(start, len(token)) and token[begin] == content:
            begin += 1
        while len(token) - end < stop and end > begin and token[end - 1] == content:
            end -= 1
        return token[begin:end]

    return lambda tokens: [one(t) for t in tokens]


def _bpe(spec: dict[str, Any]) -> Decoder:
    suffix = spec.get("suffix", "</w>")
    return lambda tokens: [t.replace(suffix, " " if i + 1 < len(tokens) else "") for i, t in enumerate(tokens)]


def decoder(spec: dict[str, Any] | None) -> Decoder:
    """Return the decoder described by tokenizer.json; its results are joined. Raises NotImplemented: unknown kind."""
    if spec is None:
        return lambda tokens: [t if i == 0 else f" {t}" for i, t in enumerate(tokens)]
    kind = spec["type"]
    if kind == "Sequence":
        parts = [decoder(part) for part in spec["decoders"]]

        def run(tokens: list[str]) -> list[str]:
            for part in parts:
                tokens = part(tokens)
            return tokens

        return run
    if kind == "Replace":
        change = replacer(spec)
        return lambda tokens: [change(t) for t in tokens]
    if kind == "Fuse":
        return lambda tokens: ["".join(tokens)]
    plain: dict[str, Decoder] = {"ByteLevel": _byte_level, "ByteFallback": _byte_fallback}
    described = {"Metaspace": _metaspace, "WordPiece": _word_piece, "Strip": _strip, "BPEDecoder": _bpe}
    if kind in described:
        return described[kind](spec)
    if kind not in plain:
        raise NotImplemented(f"tokenizer.json: the decoder {kind!r} is not supported; install the tokenizers wheel")
    return plain[kind]
