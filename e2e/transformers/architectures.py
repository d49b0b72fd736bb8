"""The ONNX files of small models, with the inputs and outputs that transformers.js knows them by."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, ValueInfoProto

from e2e.transformers.network import BOOL, INT64, Network, value

WIDTH, HEADS = 32, 4
SIZE = WIDTH // HEADS

TEXT = [value(name, ["batch_size", "length"], INT64) for name in ("input_ids", "attention_mask", "token_type_ids")]


def _positions(net: Network, x: str, table: str) -> str:
    """A row of `table` for each place of `x` [b, s]."""
    zero, one = net.constant(0), net.constant(1)
    return net.op("Gather", table, net.op("Range", zero, net.size(x, 1), one))


def _text_encoder(net: Network, vocabulary: int) -> str:
    words = net.op("Gather", net.weight(vocabulary, WIDTH, scale=1), "input_ids")
    kinds = net.op("Gather", net.weight(2, WIDTH, scale=0.2), "token_type_ids")
    places = _positions(net, "input_ids", net.weight(128, WIDTH, scale=0.5))
    x = net.norm(net.op("Add", net.op("Add", words, kinds), places), WIDTH)
    return net.layer(x, WIDTH, HEADS, net.mask_bias("attention_mask"))


def text_encoder(vocabulary: int) -> bytes:
    """last_hidden_state [b, s, width]."""
    net = Network(1)
    net.op("Identity", net.norm(_text_encoder(net, vocabulary), WIDTH), name="last_hidden_state")
    return net.model(TEXT, [value("last_hidden_state", ["batch_size", "length", WIDTH])])


def text_classifier(vocabulary: int, labels: int, seed: int = 2) -> bytes:
    """logits [b, labels], of the first token."""
    net = Network(seed)
    first = net.op("Gather", _text_encoder(net, vocabulary), net.constant(0), axis=1)
    net.op("MatMul", net.op("Tanh", net.linear(first, WIDTH, WIDTH)), net.weight(WIDTH, labels, scale=1), name="logits")
    return net.model(TEXT, [value("logits", ["batch_size", labels])])


def token_classifier(vocabulary: int, labels: int, seed: int = 3) -> bytes:
    """logits [b, s, labels]; of a whole vocabulary for masked words."""
    net = Network(seed)
    x = net.norm(_text_encoder(net, vocabulary), WIDTH)
    net.op("MatMul", x, net.weight(WIDTH, labels, scale=1), name="logits")
    return net.model(TEXT, [value("logits", ["batch_size", "length", labels])])


def question_answerer(vocabulary: int) -> bytes:
    """start_logits and end_logits [b, s]."""
    net = Network(4)
    x = net.op("MatMul", net.norm(_text_encoder(net, vocabulary), WIDTH), net.weight(WIDTH, 2, scale=1))
    for column, name in enumerate(("start_logits", "end_logits")):
        net.op("Gather", x, net.constant(column), axis=2, name=name)
    return net.model(TEXT, [value(name, ["batch_size", "length"]) for name in ("start_logits", "end_logits")])


LAYERS, GROUPS = 2, 2


def decoder(vocabulary: int, caches: bool, layers: int = LAYERS) -> bytes:
    """logits [b, s, vocabulary], grouped queries; with caches past_key_values.i.key -> present.i.key and so on."""
    net = Network(5)
    words = net.op("Gather", net.weight(vocabulary, WIDTH, scale=1), "input_ids")
    x = net.op("Add", words, net.op("Gather", net.weight(256, WIDTH, scale=0.5), "position_ids"))
    bias = net.causal_bias("attention_mask", "input_ids")
    inputs = [
        value("input_ids", ["batch_size", "length"], INT64),
        value("attention_mask", ["batch_size", "total"], INT64),
    ]
    inputs.append(value("position_ids", ["batch_size", "length"], INT64))
    outputs = [value("logits", ["batch_size", "length", vocabulary])]
    for i in range(layers):
        y = net.norm(x, WIDTH)
        q = net.heads(net.linear(y, WIDTH, WIDTH), HEADS, SIZE)
        pair = []
        for part in ("key", "value"):
            made = net.heads(net.linear(y, WIDTH, GROUPS * SIZE), GROUPS, SIZE)
            if caches:
                past, present = f"past_key_values.{i}.{part}", f"present.{i}.{part}"
                made = net.op("Concat", past, made, axis=2, name=present)
                inputs.append(value(past, ["batch_size", GROUPS, "past", SIZE]))
                outputs.append(value(present, ["batch_size", GROUPS, "total", SIZE]))
            pair.append(net.repeat(made, HEADS // GROUPS, GROUPS, SIZE))
        x = net.op("Add", x, net.linear(net.attend(q, pair[0], pair[1], SIZE, bias), WIDTH, WIDTH))
        x = net.feed_forward(x, WIDTH)
    net.op("MatMul", net.norm(x, WIDTH), net.weight(WIDTH, vocabulary, scale=1), name="logits")
    return net.model(inputs, outputs)


def seq2seq_encoder(vocabulary: int) -> bytes:
    """last_hidden_state [b, s, width]."""
    net = Network(6)
    words = net.op("Gather", net.weight(vocabulary, WIDTH, scale=1), "input_ids")
    x = net.op("Add", words, _positions(net, "input_ids", net.weight(128, WIDTH, scale=0.5)))
    x = net.layer(x, WIDTH, HEADS, net.mask_bias("attention_mask"))
    net.op("Identity", net.norm(x, WIDTH), name="last_hidden_state")
    return net.model(TEXT[:2], [value("last_hidden_state", ["batch_size", "length", WIDTH])])


def merged_decoder(vocabulary: int, masked: bool = True, seed: int = 7) -> bytes:
    """One file for the first step and the others: an If on use_cache_branch, as Optimum merges them.

    `masked`: whether rows of the encoder may be padding, of which encoder_attention_mask tells.

    The branch of the others gives no caches of the encoder: theirs are of the first step, and here of zero rows.
    """
    net = Network(seed)
    names = [f"{place}.{part}" for place in ("decoder", "encoder") for part in ("key", "value")]
    lengths = {"decoder": "past_decoder", "encoder": "past_encoder"}
    inputs = [
        *([value("encoder_attention_mask", ["batch_size", "encoder_length"], INT64)] if masked else []),
        value("input_ids", ["batch_size", "length"], INT64),
        value("encoder_hidden_states", ["batch_size", "encoder_length", WIDTH]),
        *(value(f"past_key_values.0.{n}", ["batch_size", HEADS, lengths[n.split(".")[0]], SIZE]) for n in names),
        value("use_cache_branch", [1], BOOL),
    ]
    outputs = [value("logits", ["batch_size", "length", vocabulary])]
    outputs += [value(f"present.0.{n}", ["presents", HEADS, None, SIZE]) for n in names]
    shared = {
        "words": net.weight(vocabulary, WIDTH, scale=1),
        "places": net.weight(128, WIDTH, scale=0.5),
        "head": net.weight(WIDTH, vocabulary, scale=1),
        **{f"{n}{i}": net.weight(WIDTH, WIDTH) for n in ("own", "cross") for i in range(4)},
    }
    branches = {
        f"{name}_branch": _decoder_branch(net, shared, outputs, name == "then", masked) for name in ("then", "else")
    }
    flag = net.op("Squeeze", "use_cache_branch")
    made = net.op("If", flag, outputs=len(outputs), name="logits", **branches)
    assert made == "logits"
    del net.nodes[-1].output[1:]
    net.nodes[-1].output.extend(o.name for o in outputs[1:])
    return net.model(inputs, outputs)


def _decoder_branch(
    net: Network, shared: dict[str, str], outputs: list[ValueInfoProto], cached: bool, masked: bool
) -> GraphProto:
    branch = Network(0, net, "then" if cached else "else")
    past = {n: f"past_key_values.0.{n}" for n in ("decoder.key", "decoder.value", "encoder.key", "encoder.value")}
    suffix = "_cached" if cached else "_first"
    made: dict[str, str] = {}

    def project(x: str, kind: str, i: int) -> str:
        return branch.heads(branch.op("MatMul", x, shared[f"{kind}{i}"]), HEADS, SIZE)

    offset = branch.size(past["decoder.key"], 2) if cached else branch.constant(0)
    end = branch.op("Add", offset, branch.size("input_ids", 1))
    places = branch.op("Range", offset, end, branch.constant(1))
    words = branch.op("Gather", shared["words"], "input_ids")
    x = branch.op("Add", words, branch.op("Gather", shared["places"], places))
    for i, part in ((1, "key"), (2, "value")):
        fresh = project(x, "own", i)
        name = f"decoder.{part}"
        made[name] = branch.op("Concat", past[name], fresh, axis=2) if cached else fresh
    own = branch.attend(project(x, "own", 0), made["decoder.key"], made["decoder.value"], SIZE)
    x = branch.op("Add", x, branch.op("MatMul", own, shared["own3"]))
    pair = []
    for i, part in ((1, "key"), (2, "value")):
        name = f"encoder.{part}"
        kept = branch.op("Identity", past[name]) if cached else project("encoder_hidden_states", "cross", i)
        pair.append(kept)
        empty = branch.constant([0, HEADS, 1, SIZE])
        made[name] = branch.op("ConstantOfShape", empty) if cached else kept
    bias = branch.mask_bias("encoder_attention_mask") if masked else ""
    cross = branch.attend(project(x, "cross", 0), pair[0], pair[1], SIZE, bias)
    x = branch.op("Add", x, branch.op("MatMul", cross, shared["cross3"]))
    logits = branch.op("MatMul", x, shared["head"])
    results = [logits, *(made[o.name.removeprefix("present.0.")] for o in outputs[1:])]
    ends = [branch.op("Identity", r, name=f"{o.name}{suffix}") for r, o in zip(results, outputs, strict=True)]
    declared = [value(n, [None] * len(o.type.tensor_type.shape.dim)) for n, o in zip(ends, outputs, strict=True)]
    return branch.graph([], declared, f"branch{suffix}")


def speech_encoder(mels: int, frames: int) -> bytes:
    """last_hidden_state [b, frames / 2, width] of input_features [b, mels, frames], as Whisper's."""
    net = Network(15)
    x = net.gelu(net.op("Conv", "input_features", net.weight(WIDTH, mels, 3, scale=0.2), pads=[1, 1]))
    x = net.gelu(net.op("Conv", x, net.weight(WIDTH, WIDTH, 3, scale=0.2), pads=[1, 1], strides=[2]))
    x = net.op("Add", net.op("Transpose", x, perm=[0, 2, 1]), net.weight(frames // 2, WIDTH, scale=0.2))
    net.op("Identity", net.norm(net.layer(x, WIDTH, HEADS), WIDTH), name="last_hidden_state")
    features = value("input_features", ["batch_size", mels, frames])
    return net.model([features], [value("last_hidden_state", ["batch_size", frames // 2, WIDTH])])


PIXELS = [value("pixel_values", ["batch_size", 3, "height", "width"])]
PATCH = 8


def _patches(net: Network) -> str:
    """The picture's patches [b, n, width]."""
    x = net.op("Conv", "pixel_values", net.weight(WIDTH, 3, PATCH, PATCH, scale=0.1), strides=[PATCH, PATCH])
    return net.op("Transpose", net.op("Reshape", x, net.constant([0, WIDTH, -1])), perm=[0, 2, 1])


def vision_encoder(net: Network, patches: int) -> str:
    x = _patches(net)
    batch = net.op("Unsqueeze", net.size("pixel_values", 0), net.constant([0]))
    shape = net.op("Concat", batch, net.constant([1, WIDTH]), axis=0)
    first = net.op("Expand", net.weight(1, 1, WIDTH), shape)
    x = net.op("Add", net.op("Concat", first, x, axis=1), net.weight(1, patches + 1, WIDTH, scale=0.5))
    return net.layer(x, WIDTH, HEADS)


def image_encoder(patches: int) -> bytes:
    """last_hidden_state [b, n + 1, width], pooler_output [b, width]."""
    net = Network(8)
    x = net.norm(vision_encoder(net, patches), WIDTH)
    net.op("Identity", x, name="last_hidden_state")
    net.op("Tanh", net.op("Gather", x, net.constant(0), axis=1), name="pooler_output")
    outputs = [
        value("last_hidden_state", ["batch_size", patches + 1, WIDTH]),
        value("pooler_output", ["batch_size", WIDTH]),
    ]
    return net.model(PIXELS, outputs)


def image_classifier(patches: int, labels: int) -> bytes:
    """logits [b, labels]."""
    net = Network(9)
    first = net.op("Gather", net.norm(vision_encoder(net, patches), WIDTH), net.constant(0), axis=1)
    net.op("MatMul", first, net.weight(WIDTH, labels, scale=1), name="logits")
    return net.model(PIXELS, [value("logits", ["batch_size", labels])])


def detector(labels: int, queries: int = 6) -> bytes:
    """logits [b, queries, labels + 1] and pred_boxes [b, queries, 4], centre and size within 0 and 1."""
    net = Network(10)
    x = net.norm(_patches(net), WIDTH)
    q = net.heads(net.weight(1, queries, WIDTH, scale=1), HEADS, SIZE)
    k, v = (net.heads(net.linear(x, WIDTH, WIDTH), HEADS, SIZE) for _ in range(2))
    found = net.attend(q, k, v, SIZE)
    found = net.norm(net.op("Add", found, net.weight(1, queries, WIDTH, scale=1)), WIDTH)
    net.op("MatMul", found, net.weight(WIDTH, labels + 1, scale=1), name="logits")
    net.op("Sigmoid", net.linear(found, WIDTH, 4), name="pred_boxes")
    mask = value("pixel_mask", ["batch_size", 64, 64], INT64)
    outputs = [value("logits", ["batch_size", queries, labels + 1]), value("pred_boxes", ["batch_size", queries, 4])]
    return net.model([*PIXELS, mask], outputs)


def segmenter(labels: int) -> bytes:
    """logits [b, labels, height / 4, width / 4]."""
    net = Network(11)
    x = net.op("Conv", "pixel_values", net.weight(8, 3, 7, 7, scale=0.3), strides=[4, 4], pads=[3, 3, 3, 3])
    x = net.op("Relu", x)
    net.op("Conv", x, net.weight(labels, 8, 1, 1, scale=1), name="logits")
    return net.model(PIXELS, [value("logits", ["batch_size", labels, None, None])])


def depth_estimator() -> bytes:
    """predicted_depth [b, height, width]: fewer pixels, and back by resampling."""
    net = Network(12)
    x = net.op("Conv", "pixel_values", net.weight(8, 3, 3, 3, scale=0.3), strides=[2, 2], pads=[1, 1, 1, 1])
    x = net.op("Conv", net.op("Relu", x), net.weight(1, 8, 3, 3, scale=0.3), pads=[1, 1, 1, 1])
    scales = net.constant([1, 1, 2, 2], np.float32)
    x = net.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="align_corners")
    net.op("Squeeze", net.op("Softplus", x), net.constant([1]), name="predicted_depth")
    return net.model(PIXELS, [value("predicted_depth", ["batch_size", "height", "width"])])


def sound_classifier(labels: int) -> bytes:
    """logits [b, labels] of input_values [b, samples]: two convolutions, and the mean over time."""
    net = Network(13)
    x = net.op("Unsqueeze", "input_values", net.constant([1]))
    x = net.gelu(net.op("Conv", x, net.weight(WIDTH, 1, 10, scale=0.5), strides=[5]))
    x = net.gelu(net.op("Conv", x, net.weight(WIDTH, WIDTH, 3, scale=0.2), strides=[2]))
    x = net.norm(net.op("Transpose", x, perm=[0, 2, 1]), WIDTH)
    mean = net.op("ReduceMean", x, axes=[1], keepdims=0)
    net.op("MatMul", mean, net.weight(WIDTH, labels, scale=2), name="logits")
    return net.model([value("input_values", ["batch_size", "samples"])], [value("logits", ["batch_size", labels])])
