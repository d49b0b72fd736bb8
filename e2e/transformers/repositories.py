"""Model repositories as transformers.js reads them: configuration, tokenizer, preprocessor, onnx/ folder."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

from e2e.transformers import architectures as networks
from e2e.transformers.architectures import GROUPS, HEADS, LAYERS, SIZE, WIDTH

__all__ = ["write_repositories", "write_whisper"]

Json = dict[str, Any]

TEXT = """
the a is was it i you we they movie film great bad good love hate in on at paris london john mary lives works
city capital of france what where who sport politics science about example this text and happy sad
"""
WORDS = TEXT.split()
IMAGE_LABELS, PIXELS = ["cat", "dog", "bird", "fish"], 32


def write_repositories(folder: Path) -> None:
    """Write all of them below `folder`."""
    _write_text(folder)
    _write_generation(folder)
    _write_images(folder)
    write_whisper(folder / "whisper")
    _write(
        folder / "sound",
        {
            "config": {
                "model_type": "wav2vec2",
                "architectures": ["Wav2Vec2ForSequenceClassification"],
                **_labels(["speech", "music", "noise", "silence"]),
            },
            "preprocessor_config": {
                "feature_extractor_type": "Wav2Vec2FeatureExtractor",
                "sampling_rate": 16000,
                "do_normalize": True,
                "feature_size": 1,
                "padding_value": 0,
            },
        },
        {"model": networks.sound_classifier(4)},
    )


def _write(folder: Path, files: dict[str, Json], models: dict[str, bytes]) -> None:
    (folder / "onnx").mkdir(parents=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    for name, model in models.items():
        (folder / "onnx" / f"{name}.onnx").write_bytes(model)


def _labels(names: list[str]) -> Json:
    return {"id2label": {str(i): n for i, n in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}


def _special(token: str, number: int) -> Json:
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


def _template_processing(single: str, pair: str, tokens: dict[str, int]) -> Json:
    return {
        "type": "TemplateProcessing",
        "single": _template(single.split()),
        "pair": _template(pair.split()),
        "special_tokens": {t: {"id": t, "ids": [n], "tokens": [t]} for t, n in tokens.items()},
    }


def word_pieces() -> tuple[dict[str, Json], int]:
    """A tokenizer like BERT's, of whole words and single letters; its files and the size of its vocabulary."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    signs = list(string.ascii_lowercase + string.digits + string.punctuation)
    pieces = [*special, *dict.fromkeys([*signs, *(f"##{s}" for s in string.ascii_lowercase), *WORDS])]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special(t, i) for i, t in enumerate(special)],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _template_processing(
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
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special(t, i) for i, t in enumerate(special)],
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
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special(t, i) for i, t in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": space,
        "post_processor": _template_processing("$A </s>", "$A </s> $B </s>", {"</s>": 1}),
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


def _write_text(folder: Path) -> None:
    files, size = word_pieces()

    def write(name: str, architecture: str, model: bytes, **config: Any) -> None:
        shared = {"model_type": "bert", "vocab_size": size, "hidden_size": WIDTH, "pad_token_id": 0}
        own = {"config": {**shared, "architectures": [architecture], **config}}
        _write(folder / name, {**files, **own}, {"model": model})

    write("encoder", "BertModel", networks.text_encoder(size))
    feelings = ["negative", "neutral", "positive"]
    model = networks.text_classifier(size, 3)
    write("feelings", "BertForSequenceClassification", model, **_labels(feelings))
    kinds = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    write("names", "BertForTokenClassification", networks.token_classifier(size, 5), **_labels(kinds))
    write("masked", "BertForMaskedLM", networks.token_classifier(size, size, seed=14))
    write("answers", "BertForQuestionAnswering", networks.question_answerer(size))
    follows = _labels(["contradiction", "neutral", "entailment"])
    write("follows", "BertForSequenceClassification", networks.text_classifier(size, 3, seed=15), **follows)


def _write_generation(folder: Path) -> None:
    files, size = byte_pairs()
    config: Json = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": size,
        "hidden_size": WIDTH,
        "head_dim": SIZE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "max_position_embeddings": 256,
    }
    generation = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    for name, caches in (("story", True), ("story-without-caches", False)):
        use: Json = {"use_cache": caches}
        own: dict[str, Json] = {"config": {**config, **use}, "generation_config": {**generation, **use}}
        _write(folder / name, {**files, **own}, {"model": networks.decoder(size, caches)})
    files, size = unigrams()
    config = {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": size,
        "d_model": WIDTH,
        "d_kv": SIZE,
        "num_heads": HEADS,
        "num_layers": 1,
        "num_decoder_layers": 1,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }
    ends = {name: config[name] for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id")}
    own = {"config": config, "generation_config": ends}
    models = {"encoder_model": networks.seq2seq_encoder(size), "decoder_model_merged": networks.merged_decoder(size)}
    _write(folder / "translator", {**files, **own}, models)


def _write_images(folder: Path) -> None:
    patches = (PIXELS // networks.PATCH) ** 2

    def processor(kind: str, side: int, **more: Any) -> Json:
        return {
            "image_processor_type": kind,
            "do_resize": True,
            "size": {"height": side, "width": side},
            "resample": 2,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": [0.5, 0.4, 0.3],
            "image_std": [0.2, 0.25, 0.3],
            **more,
        }

    def write(name: str, model_type: str, architecture: str, how: Json, model: bytes) -> None:
        config = {"model_type": model_type, "architectures": [architecture], **_labels(IMAGE_LABELS)}
        _write(folder / name, {"config": config, "preprocessor_config": how}, {"model": model})

    small = processor("ViTImageProcessor", PIXELS)
    write("picture", "vit", "ViTModel", small, networks.image_encoder(patches))
    write("animals", "vit", "ViTForImageClassification", small, networks.image_classifier(patches, 4))
    boxes = processor("DetrImageProcessor", 64, do_pad=True)
    write("boxes", "detr", "DetrForObjectDetection", boxes, networks.detector(4))
    areas = processor("SegformerFeatureExtractor", 64)
    write("areas", "segformer", "SegformerForSemanticSegmentation", areas, networks.segmenter(4))
    depth = processor("DPTImageProcessor", 48)
    write("depth", "depth_anything", "DepthAnythingForDepthEstimation", depth, networks.depth_estimator())


SPEECH = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>"]
SPEECH += ["<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]


def write_whisper(folder: Path) -> None:
    """Speech to text with timestamps of 0 to 30 s, in two languages."""
    files, size = byte_pairs()
    times = [f"<|{i / 50:.2f}|>" for i in range(1501)]
    ids = {token: size + i for i, token in enumerate([*SPEECH, *times])}
    tokenizer = dict(files["tokenizer"])
    named = [_special(token, number) | {"special": token not in times} for token, number in ids.items()]
    tokenizer["added_tokens"] = [*tokenizer["added_tokens"], *named]
    end, start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
    words = {"tokenizer_class": "WhisperTokenizer", "model_max_length": 448, "unk_token": "<|endoftext|>"}
    words |= {f"{name}_token": "<|endoftext|>" for name in ("bos", "eos", "pad")}
    shared = {"eos_token_id": end, "bos_token_id": end, "pad_token_id": end, "decoder_start_token_id": start}
    languages = {token: ids[token] for token in ("<|en|>", "<|de|>")}
    config = {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": size + len(ids),
        "num_mel_bins": 80,
        "d_model": WIDTH,
        **{f"{part}_layers": 1 for part in ("encoder", "decoder")},
        **{f"{part}_attention_heads": HEADS for part in ("encoder", "decoder")},
        "max_source_positions": 1500,
        "max_target_positions": 64,
        **shared,
    }
    generation = {
        **shared,
        "is_multilingual": True,
        "lang_to_id": languages,
        "task_to_id": {task: ids[f"<|{task}|>"] for task in ("translate", "transcribe")},
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "max_initial_timestamp_index": 50,
        "suppress_tokens": [*range(size, end), *range(start, ids["<|notimestamps|>"])],
        "begin_suppress_tokens": [end],
        "max_length": 64,
    }
    features = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": 80,
        "sampling_rate": 16000,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 30,
        "n_samples": 480000,
        "nb_max_frames": 3000,
        "padding_value": 0.0,
    }
    own = {"config": config, "generation_config": generation, "preprocessor_config": features}
    own |= {"tokenizer": tokenizer, "tokenizer_config": words}
    models = {
        "encoder_model": networks.speech_encoder(80, 3000),
        "decoder_model_merged": networks.merged_decoder(size + len(ids), masked=False, seed=16),
    }
    _write(folder, own, models)
