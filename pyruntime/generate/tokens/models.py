"""Models of tokenizer.json: split a piece of text into tokens of the vocabulary.

Source: Sennrich et al. 2016 (BPE), Schuster and Nakajima 2012 (WordPiece), Kudo 2018 (Unigram); huggingface/tokenizers,
file format.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from pyruntime.errors import InvalidArgument, NotImplemented

__all__ = ["model_of"]

Split = Callable[[str], list[int]]

_UNKNOWN_PENALTY = 10.0


def _bytes_of(text: str, vocabulary: dict[str, int]) -> list[int] | None:
    """Return the ids of <0x..> tokens for the UTF-8 bytes of a text; None where one is missing."""
    found = [vocabulary.get(f"<0x{b:02X}>") for b in text.encode()]
    return None if None in found else [i for i in found if i is not None]


class _Bpe:
    def __init__(self, spec: dict[str, Any]) -> None:
        self.vocabulary: dict[str, int] = spec["vocab"]
        pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in spec.get("merges", [])]
        self._ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self._unknown = self.vocabulary.get(spec.get("unk_token") or "", None)
        self._fuse = spec.get("fuse_unk", False)
        self._fallback = spec.get("byte_fallback", False)
        self._whole = spec.get("ignore_merges", False)
        self._prefix = spec.get("continuing_subword_prefix") or ""
        self._suffix = spec.get("end_of_word_suffix") or ""
        self._seen: dict[str, list[int]] = {}

    def __call__(self, piece: str) -> list[int]:
        if self._whole and piece in self.vocabulary:
            return [self.vocabulary[piece]]
        found = self._seen.get(piece)
        if found is None:
            found = self._ids(self._merged(self._symbols(piece)))
            if len(piece) < 64 and len(self._seen) < 20_000:
                self._seen[piece] = found
        return found

    def _symbols(self, piece: str) -> list[str]:
        """Return the characters as spelled in the vocabulary; unknown ones as byte tokens if those exist."""
        made: list[str] = []
        for i, c in enumerate(piece):
            symbol = (self._prefix if i else "") + c + (self._suffix if i == len(piece) - 1 else "")
            if symbol not in self.vocabulary and self._fallback and _bytes_of(symbol, self.vocabulary) is not None:
                made += [f"<0x{b:02X}>" for b in symbol.encode()]
            else:
                made.append(symbol)
        return made

    def _merged(self, symbols: list[str]) -> list[str]:
        """Merge pairs by rank, the leftmost of equal ones first."""
        following = [*range(1, len(symbols)), -1]
        previous = [*range(-1, len(symbols) - 1)]
        alive: list[str | None] = list(symbols)
        heap: list[tuple[int, int, str, str]] = []

        def offer(i: int) -> None:
            j = following[i] if i >= 0 else -1
            if j >= 0:
                a, b = alive[i], alive[j]
                assert a is not None and b is not None
                rank = self._ranks.get((a, b))
                if rank is not None:
                    heapq.heappush(heap, (rank, i, a, b))

        for i in range(len(symbols) - 1):
            offer(i)
        while heap:
            _, i, a, b = heapq.heappop(heap)
            j = following[i]
            if alive[i] != a or j < 0 or alive[j] != b:
                continue
            alive[i], alive[j] = a + b[len(self._prefix) :], None
            following[i] = following[j]
            if following[i] >= 0:
                previous[following[i]] = i
            offer(previous[i])
            offer(i)
        return [s for s in alive if s is not None]

    def _ids(self, symbols: list[str]) -> list[int]:
        made: list[int] = []
        unknown = False
        for symbol in symbols:
            found = self.vocabulary.get(symbol)
            if found is not None:
                made.append(found)
            elif self._unknown is not None and not (unknown and self._fuse):
                made.append(self._unknown)
            unknown = found is None
        return made


def _word_piece(spec: dict[str, Any]) -> Split:
    vocabulary: dict[str, int] = spec["vocab"]
    prefix, longest = spec.get("continuing_subword_prefix", "##"), spec.get("max_input_chars_per_word", 100)
    unknown = vocabulary.get(spec.get("unk_token", "[UNK]"))

    def run(piece: str) -> list[int]:
        made: list[int] = []
        at = 0
        while at < len(piece) and len(piece) <= longest:
            end = len(piece)
            while end > at and (prefix if at else "") + piece[at:end] not in vocabulary:
                end -= 1
            if end == at:
                break
            made.append(vocabulary[(prefix if at else "") + piece[at:end]])
            at = end
        if at < len(piece) or not piece:
            if unknown is None:
                raise InvalidArgument(f"the vocabulary has no token for {piece!r}, and no unknown token")
            return [unknown]
        return made

    return run


def _word_level(spec: dict[str, Any]) -> Split:
    vocabulary: dict[str, int] = spec["vocab"]
    unknown = vocabulary.get(spec.get("unk_token", "[UNK]"))
    return lambda piece: [i for i in (vocabulary.get(piece, unknown),) if i is not None]


def _unigram(spec: dict[str, Any]) -> Split:
    """Return a splitter that maximizes the sum of scores; pieces without a token become one unknown token."""
    pieces: list[tuple[str, float]] = [(p, s) for p, s in spec["vocab"]]
    vocabulary = {p: i for i, (p, _) in enumerate(pieces)}
    scores = [s for _, s in pieces]
    longest = max((len(p) for p, _ in pieces), default=0)
    unknown, fallback = spec.get("unk_id"), spec.get("byte_fallback", False)
    least = min(scores, default=0.0) - _UNKNOWN_PENALTY

    def run(piece: str) -> list[int]:
        best: list[tuple[float, int, int]] = [(0.0, -1, -1)] + [(float("-inf"), -1, -1)] * len(piece)
        for begin in range(len(piece)):
            base = best[begin][0]
            for end in range(begin + 1, min(len(piece), begin + longest) + 1):
                token = vocabulary.get(piece[begin:end])
                if token is not None and base + scores[token] > best[end][0]:
                    best[end] = (base + scores[token], begin, token)
            if piece[begin : begin + 1] not in vocabulary and base + least > best[begin + 1][0]:
                best[begin + 1] = (base + least, begin, -1)
        spans: list[tuple[int, int, int]] = []
        end = len(piece)
        while end:
            _, begin, token = best[end]
            if token < 0 and spans and spans[-1][2] < 0:
                spans[-1] = (begin, spans[-1][1], -1)
            else:
                spans.append((begin, end, token))
            end = begin
        made: list[int] = []
        for begin, end, token in reversed(spans):
            own = _bytes_of(piece[begin:end], vocabulary) if token < 0 and fallback else None
            if token >= 0:
                made.append(token)
            elif own is not None:
                made += own
            elif unknown is not None:
                made.append(unknown)
            else:
                raise InvalidArgument(f"the vocabulary has no token for {piece[begin:end]!r}")
        return made

    return run


def model_of(spec: dict[str, Any]) -> tuple[Split, dict[str, int]]:
    """Return the splitter that tokenizer.json describes, and its vocabulary. Raises NotImplemented: unknown kind."""
    kind = spec.get("type") or ("Unigram" if isinstance(spec.get("vocab"), list) else "BPE")
    if kind == "BPE":
        return _Bpe(spec), spec["vocab"]
    if kind == "Unigram":
        return _unigram(spec), {p: i for i, (p, _) in enumerate(spec["vocab"])}
    plain = {"WordPiece": _word_piece, "WordLevel": _word_level}
    if kind not in plain:
        raise NotImplemented(f"tokenizer.json: the model {kind!r} is not supported; install the tokenizers wheel")
    return plain[kind](spec), spec["vocab"]
