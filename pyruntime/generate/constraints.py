"""Constraints: masks of the tokens that keep a text within a regular expression or a JSON schema.

A token is allowed if the grammar accepts its characters and the remaining tokens, one counted for each character,
suffice to finish. Tokens with partial characters are never allowed, so characters without a whole token cannot be
generated. The first mask of a state walks the vocabulary as a tree of characters; it is then cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.errors import InvalidArgument
from pyruntime.generate.grammar import Automaton
from pyruntime.generate.json_schema import json_schema
from pyruntime.generate.options import Constraint
from pyruntime.generate.regex import regex
from pyruntime.generate.tokenizer import Tokenizer
from pyruntime.ir import Array

__all__ = ["GrammarConstraint", "TokenTable", "constraint_of"]

_FAR = 1 << 40


class TokenTable:
    """Text of each token, as a tree of characters, and the end tokens.

    Raises:
        InvalidArgument: there is no end token.
    """

    def __init__(self, texts: Sequence[str | None], end_tokens: Sequence[int]) -> None:
        if not end_tokens:
            raise InvalidArgument("a constraint needs an end token: without one nothing may follow when it is met")
        self.texts = list(texts)
        self.end_tokens = [t for t in end_tokens if 0 <= t < len(self.texts)]
        self.tree: dict[str, Any] = {}
        ends = set(end_tokens)
        for token, text in enumerate(texts):
            if text and token not in ends:
                branch = self.tree
                for c in text:
                    branch = branch.setdefault(c, {})
                branch.setdefault("", []).append(token)

    @classmethod
    def of(cls, tokenizer: Tokenizer, end_tokens: Sequence[int]) -> TokenTable:
        """Build the table of a tokenizer; special tokens and partial characters have no text."""
        vocabulary, special = tokenizer.vocabulary, tokenizer.special
        texts: list[str | None] = [None] * (max(vocabulary.values()) + 1)
        # Some decoders strip the space of a first token: each is decoded after another token.
        first = next((i for i in vocabulary.values() if i not in special and tokenizer.decode([i]).isalpha()), None)
        before = "" if first is None else tokenizer.decode([first])
        for token in vocabulary.values():
            if token not in special:
                both = tokenizer.decode([token] if first is None else [first, token])
                text = both[len(before) :]
                texts[token] = text if text and "\ufffd" not in text else None
        return cls(texts, end_tokens)


class GrammarConstraint:
    """State of one sequence in an automaton."""

    def __init__(self, automaton: Automaton, table: TokenTable) -> None:
        self._automaton = automaton
        self._table = table
        self._state = automaton.start
        self._ended = False
        self._after: dict[Any, Array] = {}

    def copy(self) -> Constraint:
        """Copy the constraint with its state; cached masks are shared."""
        made = GrammarConstraint.__new__(GrammarConstraint)
        made.__dict__.update(self.__dict__)
        return made

    def mask(self, remaining: int) -> Array:
        """Return bool [vocab]: the tokens allowed next, where `remaining` tokens are left, including this one.

        Raises:
            InvalidArgument: no token of the vocabulary continues the text.
        """
        table = self._table
        allowed = np.zeros(len(table.texts), bool)
        ends = self._automaton.ends(self._state)
        if not self._ended:
            after = self._distances()
            least = int(after.min(initial=_FAR))
            # Of the remaining tokens, one is this one and one the end token.
            allowed = after <= max(remaining - 2, least)
            allowed &= after < _FAR
            if ends and remaining - 2 < least:
                allowed[:] = False
        if ends or self._ended:
            allowed[table.end_tokens] = True
        if not allowed.any():
            raise InvalidArgument("the constraint cannot be met: no token of the vocabulary continues it here")
        return allowed

    def _distances(self) -> Array:
        """Return the least number of characters from each token to the end; `_FAR` if it is not allowed."""
        if self._state not in self._after:
            made = np.full(len(self._table.texts), _FAR, np.int64)
            waiting: list[tuple[Any, dict[str, Any]]] = [(self._state, self._table.tree)]
            while waiting:
                state, branch = waiting.pop()
                for c, below in branch.items():
                    if c == "":
                        made[below] = self._automaton.least(state)
                        continue
                    following = self._automaton.step(state, c)
                    if following:
                        waiting.append((following, below))
            self._after[self._state] = made
        return self._after[self._state]

    def accept(self, token: int) -> None:
        """Advance by the selected token.

        Raises:
            InvalidArgument: the token was not allowed.
        """
        if token in self._table.end_tokens or self._ended:
            self._ended = True
            return
        text = self._table.texts[token] if token < len(self._table.texts) else None
        self._state = self._automaton.walk(self._state, text or "")
        if not text or not self._state:
            raise InvalidArgument(f"the token {token} ({text!r}) does not keep to the constraint")


def constraint_of(kind: str, data: str, table: TokenTable) -> GrammarConstraint:
    """Create a constraint from a 'json_schema' or a 'regex'.

    Raises:
        InvalidArgument, NotImplemented: an invalid or unsupported schema or pattern.
    """
    automaton = json_schema(data) if kind == "json_schema" else Automaton({"root": regex(data)})
    return GrammarConstraint(automaton, table)
