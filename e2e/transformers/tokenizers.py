"""The files of tokenizers of a few words: like those of BERT, GPT-2, CLIP and T5."""

from __future__ import annotations

import string
from collections.abc import Iterable

from e2e.transformers.writing import Json

__all__ = ["byte_pairs", "clip_pairs", "special_token", "template_processing", "unigrams", "word_pieces"]

TEXT = """
the a is was it i you we they movie film great bad good love hate in on at paris london john mary lives works
city capital of france what where who sport politics science about example this text and happy sad
"""
WORDS = TEXT.split()


def special_token(token: str, number: int) -> Json:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": token, **flags}


def _template(parts: list[str]) -> list[Json]:
    """Of TemplateProcessing: `$A`, `$B:1` are sequences, all else tokens."""
    made = []
    for part in parts:
        name, _, kind = part.partition(":")
        where = {"type_id": int(kind or 0)}
        made.append(
            {"Sequence": {"id": name[1:], **where}} if name[0] == "$" else {"SpecialToken": {"id": name, **where}}
        )
    return made


def template_processing(single: str, pair: str, tokens: dict[str, int]) -> Json:
    return {
        "type": "TemplateProcessing",
        "single": _template(single.split()),
        "pair": _template(pair.split()),
        "special_tokens": {t: {"id": t, "ids": [n], "tokens": [t]} for t, n in tokens.items()},
    }


def _beginning(special: Iterable[tuple[int, str]]) -> Json:
    """What every tokenizer.json begins with; `special`: ids and tokens."""
    added = [special_token(token, id) for id, token in special]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}


def word_pieces() -> tuple[dict[str, Json], int]:
    """A tokenizer like BERT's, of whole words and single letters; its files and the size of its vocabulary."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    signs = list(string.ascii_lowercase + string.digits + string.punctuation)
    pieces = [*special, *dict.fromkeys([*signs, *(f"##{s}" for s in string.ascii_lowercase), *WORDS])]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = {
        **_beginning(enumerate(special)),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template_processing(
            "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", {"[CLS]": 2, "[SEP]": 3}
        ),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), special, strict=True))
    config = {
        "tokenizer_class": "BertTokenizer",
        "model_max_length": 64,
        "do_lower_case": True,
        **{f"{k}_token": v for k, v in names.items()},
    }
    return {"tokenizer": tokenizer, "tokenizer_config": config}, len(vocabulary)


def byte_pairs() -> tuple[dict[str, Json], int]:
    """A tokenizer like GPT-2's: every byte, and a few merges."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    letters = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}
    merges = ["t h", "th e", "i n", "Ġ the", "Ġ a", "a n", "o u"]
    special = ["<s>", "</s>"]
    pieces = [*special, *letters.values(), *(m.replace(" ", "") for m in merges)]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        **_beginning(enumerate(special)),
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": level,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }
    config = {
        "tokenizer_class": "GPT2Tokenizer",
        "model_max_length": 128,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "</s>",
        "unk_token": "</s>",
        "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    }
    return {"tokenizer": tokenizer, "tokenizer_config": config}, len(vocabulary)


def unigrams() -> tuple[dict[str, Json], int]:
    """A tokenizer like T5's: words with their space, and single letters."""
    special = ["<pad>", "</s>", "<unk>"]
    pieces = [*((s, 0.0) for s in special), *((f"▁{w}", -2.0 - i / 50) for i, w in enumerate(WORDS))]
    known = {piece for piece, _ in pieces}
    pieces += [(s, -8.0) for s in ("▁", *string.ascii_letters, *string.punctuation) if s not in known]
    space = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True, "prepend_scheme": "always"}
    tokenizer = {
        **_beginning(enumerate(special)),
        "normalizer": None,
        "pre_tokenizer": space,
        "post_processor": template_processing("$A </s>", "$A </s> $B </s>", {"</s>": 1}),
        "decoder": space,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": [list(p) for p in pieces]},
    }
    config = {
        "tokenizer_class": "T5Tokenizer",
        "model_max_length": 64,
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
    }
    return {"tokenizer": tokenizer, "tokenizer_config": config}, len(pieces)


def clip_pairs() -> tuple[dict[str, Json], int]:
    """A tokenizer like CLIP's: pairs of letters, each word's last one marked; its files and its vocabulary's size."""
    letters = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    merges = ["t h", "th e</w>", "a n", "o f</w>", "p h", "ph o"]
    special = ["<|startoftext|>", "<|endoftext|>"]
    pieces = [*letters, *(f"{letter}</w>" for letter in letters), *(m.replace(" ", "") for m in merges), *special]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    start, end = (vocabulary[token] for token in special)
    words = {"Regex": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        **_beginning((vocabulary[t], t) for t in special),
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Split", "pattern": words, "behavior": "Removed", "invert": True}, level],
        },
        "post_processor": template_processing(
            f"{special[0]} $A {special[1]}",
            f"{special[0]} $A {special[1]} $B {special[1]}",
            {special[0]: start, special[1]: end},
        ),
        "decoder": {"type": "ByteLevel"},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": special[1],
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "</w>",
            "fuse_unk": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }
    names = dict(zip(("bos", "eos", "pad", "unk"), (special[0], *[special[1]] * 3), strict=True))
    config = {
        "tokenizer_class": "CLIPTokenizer",
        "model_max_length": 77,
        **{f"{name}_token": token for name, token in names.items()},
    }
    return {"tokenizer": tokenizer, "tokenizer_config": config}, len(vocabulary)
