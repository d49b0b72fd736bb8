"""Repositories of small models of sound: wav2vec2 that spells, SpeechT5 and its vocoder, VITS."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import GraphProto, ValueInfoProto

from e2e.transformers.architectures import HEADS, SIZE, WIDTH
from e2e.transformers.network import BOOL, FLOAT, INT64, Network, value
from e2e.transformers.tokenizers import special_token, word_pieces
from e2e.transformers.writing import Json, write_repository

__all__ = ["write_sounds"]

MELS, SPEAKER = 8, 6


def write_sounds(folder: Path) -> None:
    """`spelling`, `speaker`, `vocoder` and `voice` below `folder`."""
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"EATONISRHDLU"]
    _write_spelling(folder / "spelling", letters)
    files, size = word_pieces()
    features = {"feature_extractor_type": "SpeechT5FeatureExtractor", "processor_class": "SpeechT5Processor"}
    config: Json = {
        "model_type": "speecht5",
        "architectures": ["SpeechT5ForTextToSpeech"],
        "is_encoder_decoder": True,
        "hidden_size": WIDTH,
        **{f"{part}_layers": 1 for part in ("encoder", "decoder")},
        **{f"{part}_attention_heads": HEADS for part in ("encoder", "decoder")},
        "num_mel_bins": MELS,
        "reduction_factor": 2,
    }
    own = {"config": config, "preprocessor_config": {**features, "sampling_rate": 16000}}
    models = {"encoder_model": _reader(size), "decoder_model_merged": _speaker()}
    write_repository(folder / "speaker", {**files, **own}, models)
    vocoder = {"config": {"model_type": "hifigan", "architectures": ["SpeechT5HifiGan"]}}
    write_repository(folder / "vocoder", vocoder, {"model": _vocoder()})
    config = {"model_type": "vits", "architectures": ["VitsModel"], "sampling_rate": 16000}
    write_repository(folder / "voice", {**files, "config": config}, {"model": voice(size)})


def _write_spelling(folder: Path, letters: list[str]) -> None:
    tokenizer: Json = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special_token(t, i) for i, t in enumerate(letters[:4])],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "|"},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": False},
        "post_processor": None,
        "decoder": {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
        "model": {"vocab": {letter: i for i, letter in enumerate(letters)}},
    }
    names = dict(zip(("pad", "bos", "eos", "unk"), letters, strict=False))
    words: Json = {"tokenizer_class": "Wav2Vec2CTCTokenizer", **{f"{k}_token": v for k, v in names.items()}}
    features: Json = {
        "feature_extractor_type": "Wav2Vec2FeatureExtractor",
        "processor_class": "Wav2Vec2Processor",
        "sampling_rate": 16000,
        "do_normalize": True,
        "feature_size": 1,
        "padding_value": 0,
    }
    config: Json = {"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForCTC"], "pad_token_id": 0}
    files = {"tokenizer": tokenizer, "tokenizer_config": words, "preprocessor_config": features, "config": config}
    write_repository(folder, files, {"model": spelling(len(letters))})


def spelling(letters: int) -> bytes:
    """logits [b, frames, letters] of input_values [b, samples].

    As wav2vec2's: convolutions, the first with a norm of every channel, a grouped convolution for places, a layer.
    """
    net = Network(21)
    x = net.op("Conv", net.op("Unsqueeze", "input_values", net.constant([1])), net.weight(WIDTH, 1, 10), strides=[5])
    flat = net.op("Reshape", x, net.constant([0, WIDTH, -1]))
    ones = net.constant(np.ones(WIDTH), np.float32)
    x = net.gelu(net.op("InstanceNormalization", flat, ones, net.weight(WIDTH, scale=0.1), epsilon=1e-5))
    for _ in range(2):
        x = net.gelu(net.op("Conv", x, net.weight(WIDTH, WIDTH, 3, scale=0.15), strides=[2]))
    x = net.norm(net.op("Transpose", x, perm=[0, 2, 1]), WIDTH)
    wide = net.op(
        "Conv", net.op("Transpose", x, perm=[0, 2, 1]), net.weight(WIDTH, 8, 4, scale=0.2), pads=[2, 2], group=4
    )
    ends = (net.constant([0]), net.constant([-1]), net.constant([2]))
    places = net.gelu(net.op("Slice", wide, *ends))
    x = net.layer(net.op("Add", x, net.op("Transpose", places, perm=[0, 2, 1])), WIDTH, HEADS)
    net.op("MatMul", net.norm(x, WIDTH), net.weight(WIDTH, letters, scale=1), name="logits")
    outputs = [value("logits", ["batch_size", "frames", letters])]
    return net.model([value("input_values", ["batch_size", "samples"])], outputs)


def _reader(vocabulary: int) -> bytes:
    """encoder_outputs [b, s, width] and encoder_attention_mask [b, s] of input_ids [b, s]."""
    net = Network(22)
    x = net.op("Gather", net.weight(vocabulary, WIDTH, scale=1), "input_ids")
    net.op("Identity", net.norm(net.layer(x, WIDTH, HEADS), WIDTH), name="encoder_outputs")
    one = net.constant(1)
    net.op("Expand", one, net.op("Shape", "input_ids"), name="encoder_attention_mask")
    outputs = [
        value("encoder_outputs", ["batch_size", "length", WIDTH]),
        value("encoder_attention_mask", ["batch_size", "length"], INT64),
    ]
    return net.model([value("input_ids", ["batch_size", "length"], INT64)], outputs)


CACHES = [f"{place}.{part}" for place in ("decoder", "encoder") for part in ("key", "value")]


def _speaker() -> bytes:
    """Two frames of the spectrum [2, mels] from the frames so far [1, n, mels], and whether it has ended, prob [2].

    One file for the first step and the others, as `architectures.merged_decoder`.
    """
    net = Network(23)
    inputs = [
        value("encoder_attention_mask", ["batch_size", "encoder_length"], INT64),
        value("output_sequence", ["batch_size", "frames", MELS]),
        value("speaker_embeddings", ["batch_size", SPEAKER]),
        value("encoder_hidden_states", ["batch_size", "encoder_length", WIDTH]),
        *(value(f"past_key_values.0.{n}", ["batch_size", HEADS, f"past_{n[:7]}", SIZE]) for n in CACHES),
        value("use_cache_branch", [1], BOOL),
    ]
    outputs = [
        value("output_sequence_out", ["batch_size", "frames_so_far", MELS]),
        value("spectrum", [2, MELS]),
        value("prob", [2]),
        *(value(f"present.0.{n}", ["batch_size", HEADS, None, SIZE]) for n in CACHES),
    ]
    shared = {
        **{f"{n}{i}": net.weight(WIDTH, WIDTH) for n in ("own", "cross") for i in range(4)},
        "mels": net.weight(MELS, WIDTH),
        "voice": net.weight(SPEAKER, WIDTH),
        "spectrum": net.weight(WIDTH, 2 * MELS, scale=0.1),
        "end": net.weight(WIDTH, 2, scale=0.02),
        "norm": net.constant(np.ones(WIDTH), np.float32),
        "shift": net.weight(WIDTH, scale=0.1),
    }
    branches = {f"{n}_branch": _speaker_branch(net, shared, outputs, n == "then") for n in ("then", "else")}
    net.op("If", net.op("Squeeze", "use_cache_branch"), outputs=len(outputs), name="output_sequence_out", **branches)
    del net.nodes[-1].output[1:]
    net.nodes[-1].output.extend(o.name for o in outputs[1:])
    return net.model(inputs, outputs)


def _speaker_branch(net: Network, shared: dict[str, str], outputs: list[ValueInfoProto], cached: bool) -> GraphProto:
    b = Network(0, net, "then" if cached else "else")
    made: dict[str, str] = {}

    def project(x: str, kind: str, i: int) -> str:
        return b.heads(b.op("MatMul", x, shared[f"{kind}{i}"]), HEADS, SIZE)

    frames = "output_sequence"
    if cached:
        frames = b.op("Slice", frames, b.constant([-1]), b.constant([2**31 - 1]), b.constant([1]))
    x = b.op("Relu", b.op("MatMul", frames, shared["mels"]))
    voice = b.op("MatMul", "speaker_embeddings", shared["voice"])
    x = b.op("Add", x, b.op("Unsqueeze", b.op("Tanh", voice), b.constant([1])))
    for i, part in ((1, "key"), (2, "value")):
        fresh, name = project(x, "own", i), f"decoder.{part}"
        made[name] = b.op("Concat", f"past_key_values.0.{name}", fresh, axis=2) if cached else fresh
    own = b.attend(project(x, "own", 0), made["decoder.key"], made["decoder.value"], SIZE)
    x = b.op("Add", x, b.op("MatMul", own, shared["own3"]))
    pair = []
    for i, part in ((1, "key"), (2, "value")):
        name = f"encoder.{part}"
        pair.append(f"past_key_values.0.{name}" if cached else project("encoder_hidden_states", "cross", i))
        made[name] = b.op("ConstantOfShape", b.constant([0, HEADS, 1, SIZE])) if cached else pair[-1]
    cross = b.attend(project(x, "cross", 0), pair[0], pair[1], SIZE, b.mask_bias("encoder_attention_mask"))
    x = b.op("Add", x, b.op("MatMul", cross, shared["cross3"]))
    x = b.op("LayerNormalization", x, shared["norm"], shared["shift"], axis=-1, epsilon=1e-5)
    last = b.op("Gather", x, b.constant(-1), axis=1)
    spectrum = b.op("Reshape", b.op("MatMul", last, shared["spectrum"]), b.constant([2, MELS]))
    end = b.op("Reshape", b.op("Sigmoid", b.op("MatMul", last, shared["end"])), b.constant([-1]))
    newest = b.op("Unsqueeze", b.op("Gather", spectrum, b.constant([1]), axis=0), b.constant([0]))
    so_far = b.op("Concat", "output_sequence", newest, axis=1)
    half = b.constant(-0.1, np.float32)
    results = [so_far, spectrum, b.op("Add", end, half)]
    results += [made[o.name.removeprefix("present.0.")] for o in outputs[3:]]
    suffix = "_cached" if cached else "_first"
    ends = [b.op("Identity", r, name=f"{o.name}{suffix}") for r, o in zip(results, outputs, strict=True)]
    declared = [value(n, [None] * len(o.type.tensor_type.shape.dim)) for n, o in zip(ends, outputs, strict=True)]
    return b.graph([], declared, f"branch{suffix}")


def _upsampled(net: Network, x: str, channels: int) -> str:
    """HiFi-GAN: [b, mels, n] to a waveform [b, 4 n], in two doublings, each with parallel dilated convolutions."""
    x = net.op("Conv", x, net.weight(channels, MELS, 7, scale=0.15), pads=[3, 3])
    for _ in range(2):
        x = net.op("LeakyRelu", x, alpha=0.1)
        narrow = channels // 2
        x = net.op("ConvTranspose", x, net.weight(channels, narrow, 4, scale=0.3), strides=[2], pads=[1, 1])
        branches = []
        for size, dilation in ((3, 1), (3, 3)):
            y = net.op("LeakyRelu", x, alpha=0.1)
            pad = dilation * (size - 1) // 2
            y = net.op("Conv", y, net.weight(narrow, narrow, size, scale=0.2), dilations=[dilation], pads=[pad, pad])
            branches.append(net.op("Add", x, y))
        x, channels = net.op("Div", net.op("Add", *branches), net.constant(2, np.float32)), narrow
    x = net.op("Conv", net.op("LeakyRelu", x, alpha=0.01), net.weight(1, channels, 7, scale=0.15), pads=[3, 3])
    return net.op("Tanh", x)


def _vocoder() -> bytes:
    """waveform [samples] of spectrogram [frames, mels]."""
    net = Network(24)
    mean, deviation = net.weight(MELS, scale=0.1), net.constant(np.linspace(0.5, 1.5, MELS), np.float32)
    x = net.op("Div", net.op("Sub", "spectrogram", mean), deviation)
    x = net.op("Unsqueeze", net.op("Transpose", x, perm=[1, 0]), net.constant([0]))
    net.op("Reshape", _upsampled(net, x, 16), net.constant([1, -1]), name="waveform")
    return net.model([value("spectrogram", ["frames", MELS])], [value("waveform", [1, "samples"])])


def voice(vocabulary: int) -> bytes:
    """waveform [b, samples] and spectrogram [b, mels, frames] of input_ids and attention_mask [b, s], as VITS.

    Each token lasts as many frames as the model says, so the sizes of what follows depend on data. The noise has a
    scale of 0, that two runtimes with other random numbers say the same.
    """
    net = Network(25)
    x = net.op("Gather", net.weight(vocabulary, WIDTH, scale=1), "input_ids")
    x = net.norm(net.layer(x, WIDTH, HEADS, net.mask_bias("attention_mask")), WIDTH)
    there = net.op("Unsqueeze", net.op("Cast", "attention_mask", to=FLOAT), net.constant([2]))
    lasts = net.op("Ceil", net.op("Exp", net.op("MatMul", x, net.weight(WIDTH, 1, scale=0.15))))
    lasts = net.op("Squeeze", net.op("Mul", lasts, there), net.constant([2]))
    total = net.op("ReduceSum", lasts, net.constant([1]), keepdims=0)
    frames = net.op("Cast", net.op("ReduceMax", total, keepdims=0), to=INT64)
    places = net.op("Cast", net.op("Range", net.constant(0), frames, net.constant(1)), to=FLOAT)
    ends = net.op("CumSum", lasts, net.constant(1))
    ends = net.op("Unsqueeze", ends, net.constant([1]))
    begins = net.op("Sub", ends, net.op("Unsqueeze", lasts, net.constant([1])))
    places = net.op("Unsqueeze", places, net.constant([0, 2]))
    inside = net.op("And", net.op("GreaterOrEqual", places, begins), net.op("Less", places, ends))
    prior = net.op("MatMul", net.op("Cast", inside, to=FLOAT), net.op("MatMul", x, net.weight(WIDTH, MELS)))
    noise = net.op("RandomNormalLike", prior, dtype=FLOAT)
    prior = net.op("Add", prior, net.op("Mul", noise, net.constant(0, np.float32)))
    spectrum = net.op("Transpose", prior, perm=[0, 2, 1], name="spectrogram")
    first = net.op("Split", spectrum, net.constant([MELS // 2, MELS // 2]), axis=1, outputs=2)
    second = net.nodes[-1].output[1]
    hidden = net.op("Conv", first, net.weight(WIDTH, MELS // 2, 5, scale=0.2), pads=[2, 2])
    wave, gate = net.op("Split", hidden, net.constant([WIDTH // 2] * 2), axis=1, outputs=2), net.nodes[-1].output[1]
    gated = net.op("Mul", net.op("Tanh", wave), net.op("Sigmoid", gate))
    moved = net.op("Sub", second, net.op("Conv", gated, net.weight(MELS // 2, WIDTH // 2, 1, scale=0.3)))
    x = net.op("Concat", moved, first, axis=1)
    net.op("Squeeze", _upsampled(net, x, 16), net.constant([1]), name="waveform")
    inputs = [value(name, ["batch_size", "length"], INT64) for name in ("input_ids", "attention_mask")]
    outputs = [value("waveform", ["batch_size", "samples"]), value("spectrogram", ["batch_size", MELS, "frames"])]
    return net.model(inputs, outputs)
