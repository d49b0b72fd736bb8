"""Repositories of models made smaller: weights in blocks of 4 bits, integers of 8 bits; or in several files."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from e2e.transformers import architectures as networks
from e2e.transformers.tokenizers import byte_pairs, word_pieces
from e2e.transformers.writing import Json, write_repository
from tests.genai.packed import Shape, packed_model

__all__ = ["BUILT", "in_blocks", "in_pieces", "write_packed"]

BLOCK = 32

SUFFIXES = {"float32": "", "int4": "_q4", "int4 float16": "_q4f16"}
"""Of the files of the builder's precisions, as transformers.js names them."""

BUILT = Shape(layers=2, heads=4, groups=2, size=16, inner=96, words=byte_pairs()[1], bias=True, tied=False)


def write_packed(folder: Path) -> None:
    """`small-encoder`, `small-story`, `built`, `built-tied` and `story-in-pieces` below `folder`."""
    files, size = word_pieces()
    config: Json = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": size, "hidden_size": 32}
    encoder = networks.text_encoder(size)
    write_repository(folder / "small-encoder", {**files, "config": config}, {"model": encoder})
    small = folder / "small-encoder/onnx/model_quantized.onnx"
    logging.disable(logging.WARNING)  # that the model could be optimised first
    try:
        quantize_dynamic(onnx.load_model_from_string(encoder), small, weight_type=QuantType.QInt8)
    finally:
        logging.disable(logging.NOTSET)
    files, size = byte_pairs()
    ends: Json = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}

    def files_of(layers: int, heads: int, groups: int, head: int) -> dict[str, Json]:
        config = {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": size,
            "hidden_size": heads * head,
            "head_dim": head,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": groups,
            "max_position_embeddings": 256,
            **ends,
            "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
        }
        return {**files, "config": config, "generation_config": ends}

    own = files_of(networks.LAYERS, networks.HEADS, networks.GROUPS, networks.SIZE)
    story = networks.decoder(size, caches=True)
    write_repository(folder / "small-story", own, {"model_q4": in_blocks(story)})
    write_repository(folder / "story-in-pieces", own, {})
    in_pieces(story, folder / "story-in-pieces/onnx/model.onnx", 3)
    for name, shape in (("built", BUILT), ("built-tied", replace(BUILT, tied=True))):
        built = {f"model{end}": packed_model(shape, 5, precision) for precision, end in SUFFIXES.items()}
        write_repository(folder / name, files_of(shape.layers, shape.heads, shape.groups, shape.size), built)


def in_blocks(model: bytes) -> bytes:
    """`model` with every product by a matrix of weights a MatMulNBits of 4 bits, symmetric, a scale for 32 of a column.

    A block's scale makes its number of greatest size -8, as onnxruntime's quantiser has it.
    """
    made = onnx.load_model_from_string(model)
    weights = {w.name: numpy_helper.to_array(w) for w in made.graph.initializer}
    for node in made.graph.node:
        matrix = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        if matrix is None:
            continue
        k, n = matrix.shape
        blocks = np.pad(matrix.T, ((0, 0), (0, -k % BLOCK))).reshape(n, -1, BLOCK)
        most = np.take_along_axis(blocks, np.abs(blocks).argmax(2)[..., None], 2)
        scales = np.where(most == 0, 1, most / -8).astype(np.float32)
        codes = np.clip(np.rint(blocks / scales) + 8, 0, 15).astype(np.uint8)
        node.input[1:] = [f"{node.name}.codes", f"{node.name}.scales"]
        packed = (codes[..., 0::2] | codes[..., 1::2] << 4, scales[..., 0])
        made.graph.initializer.extend(map(numpy_helper.from_array, packed, node.input[1:]))
        node.op_type, node.domain = "MatMulNBits", "com.microsoft"
        sizes = {"K": k, "N": n, "bits": 4, "block_size": BLOCK}
        node.attribute.extend(helper.make_attribute(name, size) for name, size in sizes.items())
    used = {name for node in made.graph.node for name in node.input}
    kept = [w for w in made.graph.initializer if w.name in used]
    del made.graph.initializer[:]
    made.graph.initializer.extend(kept)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return bytes(made.SerializeToString())


def in_pieces(model: bytes, path: Path, count: int) -> None:
    """Write `model` to `path`, its weights to `count` files next to it: NAME_data, NAME_data_1, ..."""
    made = onnx.load_model_from_string(model)
    pieces = [bytearray() for _ in range(count)]
    large = [w for w in made.graph.initializer if len(w.raw_data) >= 1024]  # as exporters: shapes stay readable
    for i, weight in enumerate(large):
        piece, data = pieces[i % count], numpy_helper.to_array(weight).tobytes()
        external_data_helper.set_external_data(weight, _piece(path, i % count), len(piece), len(data))
        weight.ClearField("raw_data")
        piece += data + bytes(-len(data) % 64)
    path.write_bytes(made.SerializeToString())
    for i, piece in enumerate(pieces):
        (path.parent / _piece(path, i)).write_bytes(piece)


def _piece(path: Path, i: int) -> str:
    return f"{path.name}_data" + (f"_{i}" if i else "")
