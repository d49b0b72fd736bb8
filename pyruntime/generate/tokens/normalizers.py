"""Normalizers of tokenizer.json, which change the text before it is split.

Source: huggingface/tokenizers, file format.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any, Literal, cast

from pyruntime.errors import NotImplemented
from pyruntime.generate.tokens.patterns import compiled

__all__ = ["Normalizer", "byte_alphabet", "is_chinese", "normalizer", "replacer"]

Normalizer = Callable[[str], str]

_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
_FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def byte_alphabet() -> list[str]:
    """Return the character that represents each byte in byte-level vocabularies. Source: GPT-2's encoder."""
    kept = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(b) if b in kept else chr(next(others)) for b in range(256)]


def is_chinese(character: str) -> bool:
    """Return whether BERT treats this character as a separate word."""
    point = ord(character)
    return any(a <= point <= b for a, b in _CHINESE)


def replacer(spec: dict[str, Any]) -> Normalizer:
    """Return a function that replaces `pattern`, a string or a regular expression, with `content`."""
    pattern, content = spec["pattern"], spec["content"]
    if "String" in pattern:
        return lambda text: text.replace(pattern["String"], content)
    regex = compiled(pattern["Regex"])
    return lambda text: regex.sub(lambda _: content, text)


def _strip_accents(text: str) -> str:
    return "".join(c for c in text if not unicodedata.category(c).startswith("M"))


def _lowercase(text: str) -> str:
    # The tokenizers crate lowers single characters; lowering whole strings would treat a final Σ differently.
    return "".join(c.lower() for c in text)


def _bert(spec: dict[str, Any]) -> Normalizer:
    lower = spec.get("lowercase", True)
    strip = spec.get("strip_accents")
    strip = lower if strip is None else strip

    def run(text: str) -> str:
        if spec.get("clean_text", True):
            text = "".join(_clean(c) for c in text)
        if spec.get("handle_chinese_chars", True):
            text = "".join(f" {c} " if is_chinese(c) else c for c in text)
        if strip:
            text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
        return _lowercase(text) if lower else text

    return run


def _clean(c: str) -> str:
    if c in "\t\n\r":
        return " "
    if c == "\0" or c == "\ufffd" or unicodedata.category(c).startswith("C"):
        return ""
    return " " if compiled(r"\s").match(c) else c


def normalizer(spec: dict[str, Any] | None) -> Normalizer:
    """Return the normalizer that tokenizer.json describes. Raises NotImplemented: unknown kind."""
    if spec is None:
        return lambda text: text
    kind = spec["type"]
    if kind == "Sequence":
        parts = [normalizer(part) for part in spec["normalizers"]]

        def run(text: str) -> str:
            for part in parts:
                text = part(text)
            return text

        return run
    if kind in _FORMS:
        return lambda text: unicodedata.normalize(cast(Literal["NFC"], kind), text)
    if kind == "Strip":
        left, right = spec.get("strip_left", True), spec.get("strip_right", True)
        pattern = compiled("|".join([r"\A\s+"] * left + [r"\s+\Z"] * right) or r"(?!)")
        return lambda text: pattern.sub("", text)
    if kind == "Prepend":
        return lambda text: spec["prepend"] + text if text else text
    if kind == "ByteLevel":
        alphabet = byte_alphabet()
        return lambda text: "".join(alphabet[b] for b in text.encode())
    if kind == "Replace":
        return replacer(spec)
    if kind == "BertNormalizer":
        return _bert(spec)
    plain: dict[str, Normalizer] = {"Lowercase": _lowercase, "StripAccents": _strip_accents}
    if kind not in plain:
        raise NotImplemented(f"tokenizer.json: the normalizer {kind!r} is not supported; install the tokenizers wheel")
    return plain[kind]
