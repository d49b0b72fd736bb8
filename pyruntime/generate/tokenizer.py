"""Tokenizers of model folders: tokenizer.json, read by the `tokenizers` wheel if installed, else by this package.

Streamed text never has incomplete characters. Chat templates need jinja2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyruntime.errors import InvalidArgument, NoSuchFile
from pyruntime.generate.tokens.decoders import decoder
from pyruntime.generate.tokens.models import model_of
from pyruntime.generate.tokens.normalizers import normalizer
from pyruntime.generate.tokens.pre_tokenizers import pre_tokenizer

__all__ = ["TextStream", "Tokenizer", "render_chat"]


class _Reader:
    """This package's reader of tokenizer.json. `encode` and `decode` are those of the wheel's Tokenizer."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._normalize = normalizer(spec.get("normalizer"))
        self._pieces = pre_tokenizer(spec.get("pre_tokenizer"))
        self._split, vocabulary = model_of(spec["model"])
        self._post = spec.get("post_processor")
        self._decode = decoder(spec.get("decoder"))
        added = spec.get("added_tokens") or []
        self.vocabulary: dict[str, int] = {**vocabulary, **{t["content"]: t["id"] for t in added}}
        self._tokens = {i: t for t, i in self.vocabulary.items()}
        self._special = {t["content"] for t in added if t.get("special")}
        self._raw = _finder([t for t in added if not t.get("normalized", not t.get("special"))], lambda text: text)
        self._normal = _finder([t for t in added if t.get("normalized", not t.get("special"))], self._normalize)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        ids: list[int] = []
        for at, part, token in self._raw(text):
            if token is not None:
                ids.append(token)
                continue
            for inner, piece, known in self._normal(self._normalize(part)):
                if known is not None:
                    ids.append(known)
                elif piece:
                    for word in self._pieces([piece], at == 0 and inner == 0):
                        ids += self._split(word)
        return self._framed(ids, self._post) if add_special_tokens else ids

    def _framed(self, ids: list[int], post: Mapping[str, Any] | None) -> list[int]:
        """Add the tokens that the post-processor puts around a text."""
        kind = post["type"] if post else ""
        if post is None or kind == "ByteLevel":
            return ids
        if kind == "Sequence":
            for part in post["processors"]:
                ids = self._framed(ids, part)
            return ids
        if kind in ("BertProcessing", "RobertaProcessing"):
            return [post["cls"][1], *ids, post["sep"][1]]
        if kind == "TemplateProcessing":
            made: list[int] = []
            for item in post["single"]:
                if "Sequence" in item:
                    made += ids
                else:
                    made += post["special_tokens"][item["SpecialToken"]["id"]]["ids"]
            return made
        raise InvalidArgument(f"tokenizer.json: the post-processor {kind!r} is not known; install the tokenizers wheel")

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        tokens = [self._tokens[i] for i in ids if i in self._tokens]
        if skip_special_tokens:
            tokens = [t for t in tokens if t not in self._special]
        return "".join(self._decode(tokens)) if tokens else ""

    def token_to_id(self, token: str) -> int | None:
        return self.vocabulary.get(token)

    def id_to_token(self, token: int) -> str | None:
        return self._tokens.get(token)

    @property
    def special(self) -> set[int]:
        return {self.vocabulary[t] for t in self._special}


def _finder(added: Sequence[Mapping[str, Any]], change: Any) -> Any:
    """Return a function that splits a text at added tokens, the longest match first: (offset, text, id or None)."""
    forms = {change(t["content"]): t for t in added if t["content"]}
    alternatives: list[str] = []
    for text in sorted(forms, key=len, reverse=True):
        token, escaped = forms[text], re.escape(text)
        if token.get("single_word"):
            escaped = rf"(?<!\w){escaped}(?!\w)"
        before, after = (r"\s*" if token.get(side) else "" for side in ("lstrip", "rstrip"))
        alternatives.append(f"{before}(?P<t{len(alternatives)}>{escaped}){after}")
    ids = [forms[text]["id"] for text in sorted(forms, key=len, reverse=True)]
    pattern = re.compile("|".join(alternatives)) if alternatives else None

    def run(text: str) -> list[tuple[int, str, int | None]]:
        made: list[tuple[int, str, int | None]] = []
        at = 0
        for match in pattern.finditer(text) if pattern else ():
            if match.start() > at:
                made.append((at, text[at : match.start()], None))
            made.append((match.start(), match[0], ids[int(str(match.lastgroup)[1:])]))
            at = match.end()
        return [*made, (at, text[at:], None)] if at < len(text) else made

    return run


class _Wheel:
    """The `tokenizers` wheel, with the methods of `_Reader`."""

    def __init__(self, text: str) -> None:
        import tokenizers

        self._own: Any = tokenizers.Tokenizer.from_str(text)
        self.vocabulary: dict[str, int] = self._own.get_vocab(True)
        self.special = {i for i, t in self._own.get_added_tokens_decoder().items() if t.special}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(self._own.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return str(self._own.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def token_to_id(self, token: str) -> int | None:
        found: int | None = self._own.token_to_id(token)
        return found

    def id_to_token(self, token: int) -> str | None:
        found: str | None = self._own.id_to_token(token)
        return found


class TextStream:
    """Incremental decoder of ids; a character is returned when all of its bytes have arrived."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._ids: list[int] = []
        self._shown = 0

    def step(self, token: int) -> str:
        """Return the text that this id adds; empty while a character is incomplete."""
        before = self._tokenizer.decode(self._ids[: self._shown], self._skip)
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids, self._skip)
        if len(text) <= len(before) or text.endswith("\ufffd"):
            return ""
        # The last ids returned stay as context: a token's text may depend on the token before it.
        self._ids = self._ids[self._shown :]
        self._shown = len(self._ids)
        return text[len(before) :]


class Tokenizer:
    """Converts between text and ids, with the folder's special tokens and chat template.

    Args:
        folder: has tokenizer.json, and optionally tokenizer_config.json and chat_template.jinja.
        own: use this package's reader even if the wheel is installed.

    Raises:
        NoSuchFile: there is no tokenizer.json.
        NotImplemented: tokenizer.json has an unsupported part, and the wheel is not installed.
    """

    def __init__(self, folder: str | Path, own: bool = False) -> None:
        path = Path(folder)
        if not (path / "tokenizer.json").is_file():
            raise NoSuchFile(f"{path / 'tokenizer.json'}: there is no such file; other tokenizer files are not read")
        text = (path / "tokenizer.json").read_text("utf-8")
        self._inner = _reader(text, own)
        config = path / "tokenizer_config.json"
        self.config: dict[str, Any] = json.loads(config.read_text("utf-8")) if config.is_file() else {}
        template = path / "chat_template.jinja"
        self.chat_template = template.read_text("utf-8") if template.is_file() else self.config.get("chat_template")

    @classmethod
    def from_text(cls, text: str, config: Mapping[str, Any] | None = None, own: bool = False) -> Tokenizer:
        """Create a tokenizer from the text of a tokenizer.json and the parsed tokenizer_config.json."""
        made = cls.__new__(cls)
        made._inner = _reader(text, own)
        made.config = dict(config or {})
        made.chat_template = made.config.get("chat_template")
        return made

    @property
    def vocabulary(self) -> dict[str, int]:
        """Ids by token, as spelled in the file."""
        return self._inner.vocabulary

    @property
    def special(self) -> set[int]:
        """Ids of special tokens, which have no text."""
        return set(self._inner.special)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Encode a text to ids."""
        return self._inner.encode(text, add_special_tokens)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decode ids to a text."""
        return self._inner.decode([int(i) for i in ids], skip_special_tokens)

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token; None where it is unknown."""
        return self._inner.token_to_id(token)

    @property
    def begin_token(self) -> int | None:
        """Id of bos_token, which tokenizer or template may put at the start of a text; None: not defined."""
        named = _content(self.config.get("bos_token"))
        return self.token_to_id(named) if named else None

    def stream(self) -> TextStream:
        """Create an incremental decoder."""
        return TextStream(self)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        template: str | None = None,
        tools: Any = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Format a conversation with the model's chat template."""
        chosen = template or self.chat_template
        if isinstance(chosen, list):
            chosen = next((t["template"] for t in chosen if t["name"] == "default"), None)
        if not chosen:
            raise InvalidArgument("the folder has no chat template; pass one, or format the prompt yourself")
        names = {n: _content(self.config.get(n)) for n in ("bos_token", "eos_token", "pad_token", "unk_token")}
        return render_chat(chosen, messages, tools, add_generation_prompt, {n: t for n, t in names.items() if t})


def _reader(text: str, own: bool) -> _Reader | _Wheel:
    if not own:
        try:
            return _Wheel(text)
        except ImportError:
            pass
    return _Reader(json.loads(text))


def _content(token: Any) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token or "")


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Any = None,
    add_generation_prompt: bool = True,
    names: Mapping[str, str] | None = None,
) -> str:
    """Render a conversation with a chat template, as transformers does.

    Raises:
        InvalidArgument: jinja2 is missing, or the template rejects the messages.
    """
    try:
        from jinja2.exceptions import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise InvalidArgument("chat templates need jinja2: pip install jinja2") from None

    def refuse(message: str) -> str:
        raise InvalidArgument(f"the chat template says: {message}")

    def to_json(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    try:
        made = environment.from_string(template)
        given = {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        return str(made.render(**given, **(names or {})))
    except TemplateError as error:
        raise InvalidArgument(f"the chat template cannot be rendered: {error}") from error
