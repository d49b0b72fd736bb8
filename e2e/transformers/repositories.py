"""Model repositories as transformers.js reads them: configuration, tokenizer, preprocessor, onnx/ folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from e2e.transformers import architectures as networks
from e2e.transformers.architectures import GROUPS, HEADS, LAYERS, SIZE, WIDTH
from e2e.transformers.decoders import PLACES, gpt2, qwen2
from e2e.transformers.packed import write_packed
from e2e.transformers.pictures import image_processor, write_pictures
from e2e.transformers.sounds import write_sounds
from e2e.transformers.tokenizers import byte_pairs, special_token, unigrams, word_pieces
from e2e.transformers.writing import Json, labels, write_repository

__all__ = ["write_repositories", "write_whisper"]

IMAGE_LABELS, PIXELS = ["cat", "dog", "bird", "fish"], 32


def write_repositories(folder: Path) -> None:
    """Write all of them below `folder`."""
    _write_text(folder)
    _write_generation(folder)
    _write_images(folder)
    write_pictures(folder)
    write_sounds(folder)
    write_packed(folder)
    write_whisper(folder / "whisper")
    write_repository(
        folder / "sound",
        {
            "config": {
                "model_type": "wav2vec2",
                "architectures": ["Wav2Vec2ForSequenceClassification"],
                **labels(["speech", "music", "noise", "silence"]),
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


def _write_text(folder: Path) -> None:
    files, size = word_pieces()

    def write(name: str, architecture: str, model: bytes, **config: Any) -> None:
        shared = {"model_type": "bert", "vocab_size": size, "hidden_size": WIDTH, "pad_token_id": 0}
        own = {"config": {**shared, "architectures": [architecture], **config}}
        write_repository(folder / name, {**files, **own}, {"model": model})

    write("encoder", "BertModel", networks.text_encoder(size))
    feelings = ["negative", "neutral", "positive"]
    model = networks.text_classifier(size, 3)
    write("feelings", "BertForSequenceClassification", model, **labels(feelings))
    kinds = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    write("names", "BertForTokenClassification", networks.token_classifier(size, 5), **labels(kinds))
    write("masked", "BertForMaskedLM", networks.token_classifier(size, size, seed=14))
    write("answers", "BertForQuestionAnswering", networks.question_answerer(size))
    follows = labels(["contradiction", "neutral", "entailment"])
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
        write_repository(folder / name, {**files, **own}, {"model": networks.decoder(size, caches)})
    own = {"config": {**config, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}}
    write_repository(folder / "qwen2", {**files, **own, "generation_config": generation}, {"model": qwen2(size)})
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": size,
        "n_embd": WIDTH,
        "n_head": HEADS,
        "n_layer": LAYERS,
        "n_positions": PLACES,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    own = {"config": config, "generation_config": generation}
    write_repository(folder / "gpt2", {**files, **own}, {"model": gpt2(size)})
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
    write_repository(folder / "translator", {**files, **own}, models)


def _write_images(folder: Path) -> None:
    patches = (PIXELS // networks.PATCH) ** 2

    def write(name: str, model_type: str, architecture: str, how: Json, model: bytes) -> None:
        config = {"model_type": model_type, "architectures": [architecture], **labels(IMAGE_LABELS)}
        write_repository(folder / name, {"config": config, "preprocessor_config": how}, {"model": model})

    small = image_processor("ViTImageProcessor", PIXELS)
    write("picture", "vit", "ViTModel", small, networks.image_encoder(patches))
    write("animals", "vit", "ViTForImageClassification", small, networks.image_classifier(patches, 4))
    boxes = image_processor("DetrImageProcessor", 64, do_pad=True)
    write("boxes", "detr", "DetrForObjectDetection", boxes, networks.detector(4))
    areas = image_processor("SegformerFeatureExtractor", 64)
    write("areas", "segformer", "SegformerForSemanticSegmentation", areas, networks.segmenter(4))
    depth = image_processor("DPTImageProcessor", 48)
    write("depth", "depth_anything", "DepthAnythingForDepthEstimation", depth, networks.depth_estimator())


SPEECH = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>"]
SPEECH += ["<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]


def write_whisper(folder: Path) -> None:
    """Speech to text with timestamps of 0 to 30 s, in two languages."""
    files, size = byte_pairs()
    times = [f"<|{i / 50:.2f}|>" for i in range(1501)]
    ids = {token: size + i for i, token in enumerate([*SPEECH, *times])}
    tokenizer = dict(files["tokenizer"])
    named = [special_token(token, number) | {"special": token not in times} for token, number in ids.items()]
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
    write_repository(folder, own, models)
