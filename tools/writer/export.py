"""Export of the network as ONNX, with the operators of published models of its kind, and its folder's other files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

from tools.writer.network import Quantized, Shape, Writer, quantize, rotary
from tools.writer.train import END_OF_TEXT

MICROSOFT = "com.microsoft"


class Graph:
    """Nodes and weights; methods add nodes and return the name of their output."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, kind: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=outputs[0], domain=domain, **attributes))
        return outputs[0]

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def blocks(self, layer: Quantized, name: str) -> tuple[str, str]:
        """Add a weight in MatMulNBits' format: packed `[N, K / block, bytes of a block]`, scales `[N, K / block]`."""
        integers, scales = quantize(layer.weight.detach().float(), layer.bits, layer.block)
        values = integers.numpy().astype(np.uint8)
        if layer.bits == 4:
            values = values[:, ::2] | values[:, 1::2] << 4
        packed = values.reshape(len(values), scales.shape[1], -1)
        return self.constant(f"{name}.quantized", packed), self.constant(f"{name}.scales", scales.numpy())

    def linear(self, layer: Quantized, x: str, name: str) -> str:
        return self.product(x, *self.blocks(layer, name), name, layer)

    def product(self, x: str, packed: str, scales: str, name: str, layer: Quantized) -> str:
        n, k = layer.weight.shape
        sizes = {"N": n, "K": k, "bits": layer.bits, "block_size": layer.block}
        return self.add("MatMulNBits", [x, packed, scales], [name], MICROSOFT, **sizes)

    def sum_and_norm(self, x: str, y: str, weight: Any, name: str, total: str) -> str:
        """Add norm(x + y); the sum is named `total`."""
        scale = self.constant(f"{name}.weight", weight.weight.detach().numpy())
        outputs = [name, "", "", total] if total else [name]
        epsilon = self.shape.rms_norm_eps
        return self.add("SkipSimplifiedLayerNormalization", [x, y, scale], outputs, MICROSOFT, epsilon=epsilon)

    def attention(self, layer: Any, x: str, number: int) -> str:
        packed = self.linear(layer.qkv, x, f"layer{number}.qkv")
        past, present = (f"past_key_values.{number}", f"present.{number}")
        inputs = [packed, "", "", f"{past}.key", f"{past}.value", "last_positions", "total_length", "cos", "sin"]
        outputs = [f"layer{number}.attention", f"{present}.key", f"{present}.value"]
        heads = {"num_heads": self.shape.num_attention_heads, "kv_num_heads": self.shape.num_key_value_heads}
        attended = self.add("GroupQueryAttention", inputs, outputs, MICROSOFT, do_rotary=1, **heads)
        return self.linear(layer.output, attended, f"layer{number}.output")

    def feed_forward(self, layer: Any, x: str, number: int) -> str:
        name = f"layer{number}"
        both = self.linear(layer.gate_up, x, f"{name}.gate_up")
        self.nodes.append(helper.make_node("Split", [both], [f"{name}.gate", f"{name}.up"], axis=-1, num_outputs=2))
        sigmoid = self.add("Sigmoid", [f"{name}.gate"], [f"{name}.sigmoid"])
        gate = self.add("Mul", [f"{name}.gate", sigmoid], [f"{name}.silu"])
        return self.linear(layer.down, self.add("Mul", [gate, f"{name}.up"], [f"{name}.inner"]), f"{name}.down")

    def lengths(self) -> None:
        """Compute from the mask the last position of each row, and the total length."""
        axes, one = self.constant("axes", np.array([1])), self.constant("one", np.array(1))
        counts = self.add("ReduceSum", ["attention_mask", axes], ["counts"], keepdims=0)
        last = self.add("Sub", [counts, one], ["last"])
        self.add("Cast", [last], ["last_positions"], to=TensorProto.INT32)
        sizes = self.add("Shape", ["attention_mask"], ["mask_shape"])
        length = self.add("Gather", [sizes, one], ["mask_length"], axis=0)
        self.add("Cast", [length], ["total_length"], to=TensorProto.INT32)


def nodes_of(network: Writer) -> Graph:
    """Return the whole network: `input_ids`, `attention_mask` and caches -> `logits` and caches."""
    graph, shape = Graph(network.shape), network.shape
    cos, sin = (part.numpy().astype(np.float32) for part in rotary(shape))
    graph.constant("cos", cos)
    graph.constant("sin", sin)
    graph.lengths()
    packed, scales = graph.blocks(network.table, "table")
    rows = graph.constant("table.shape", np.array([shape.vocab_size, shape.hidden_size]))
    table = graph.add("Reshape", [packed, rows], ["table"])
    kinds = {"bits": 8, "block_size": shape.block_size, "gather_axis": 0, "quantize_axis": 1}
    x = graph.add("GatherBlockQuantized", [table, "input_ids", scales], ["embedded"], MICROSOFT, **kinds)
    weight = network.layers[0].input_norm.weight.detach().numpy()
    norm = graph.constant("layer0.input_norm.weight", weight)
    y = graph.add(
        "SimplifiedLayerNormalization",
        [x, norm],
        ["layer0.input_norm"],
        axis=-1,
        epsilon=shape.rms_norm_eps,
        stash_type=1,
    )
    for number, layer in enumerate(network.layers):
        attended = graph.attention(layer, y, number)
        middle, after = f"layer{number}.middle", f"layer{number}.after"
        y = graph.sum_and_norm(x, attended, layer.post_norm, f"layer{number}.post_norm", middle)
        fed = graph.feed_forward(layer, y, number)
        last = number + 1 == shape.num_hidden_layers
        following = network.norm if last else network.layers[number + 1].input_norm
        name = "norm" if last else f"layer{number + 1}.input_norm"
        y = graph.sum_and_norm(middle, fed, following, name, "" if last else after)
        x = after
    graph.product(y, packed, scales, "logits", network.table)
    return graph


def to_onnx(network: Writer) -> onnx.ModelProto:
    """Return the model with transformers.js' input and output names; caches are `[batch, heads, length, size]`."""
    shape, graph = network.shape, nodes_of(network)

    def caches(name: str, length: str) -> list[onnx.ValueInfoProto]:
        dims: list[str | int | None] = ["batch_size", shape.num_key_value_heads, length, shape.head_dim]
        names = [f"{name}.{i}.{part}" for i in range(shape.num_hidden_layers) for part in ("key", "value")]
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in names]

    value = helper.make_tensor_value_info
    inputs = [
        value("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
        value("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"]),
        *caches("past_key_values", "past_sequence_length"),
    ]
    logits = value("logits", TensorProto.FLOAT, ["batch_size", "sequence_length", shape.vocab_size])
    outputs = [logits, *caches("present", "total_sequence_length")]
    made = helper.make_graph(graph.nodes, "austen", inputs, outputs, graph.weights)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(made, producer_name="pyruntime", ir_version=9, opset_imports=opsets)
    helper.set_model_props(
        model, {"data": "the six novels of Jane Austen (public domain), Debian's r-cran-janeaustenr"}
    )
    return model


def write(network: Writer, tokenizer: Tokenizer, folder: Path) -> int:
    """Write the folder for transformers.js and onnxruntime-genai; return its size in bytes."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    sizes = asdict(network.shape)
    del sizes["block_size"]
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": True,
        **sizes, "bos_token_id": end, "eos_token_id": end,
        "transformers.js_config": {"dtype": "q4"},
    }  # fmt: skip
    generation = {"bos_token_id": end, "eos_token_id": end, "do_sample": True, "temperature": 0.8, "top_p": 0.95}
    words = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": network.shape.max_position_embeddings,
        "bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT, "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    for name, content in {
        "config": config, "generation_config": generation, "tokenizer_config": words,
        "genai_config": genai_config(network.shape, generation),
    }.items():  # fmt: skip
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    content = json.loads(tokenizer.to_str())
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    (folder / "onnx" / "model_q4.onnx").write_bytes(to_onnx(network).SerializeToString())
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def genai_config(shape: Shape, generation: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of genai_config.json."""
    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    inputs |= {f"past_{part}_names": f"past_key_values.%d.{part}" for part in ("key", "value")}
    outputs = {"logits": "logits"} | {f"present_{part}_names": f"present.%d.{part}" for part in ("key", "value")}
    sizes = {
        "head_size": shape.head_dim, "hidden_size": shape.hidden_size, "num_attention_heads": shape.num_attention_heads,
        "num_hidden_layers": shape.num_hidden_layers, "num_key_value_heads": shape.num_key_value_heads,
    }  # fmt: skip
    end, length = generation["eos_token_id"], shape.max_position_embeddings
    ends = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    model = {"type": "llama", **ends, "context_length": length, "vocab_size": shape.vocab_size}
    decoder = {"filename": "onnx/model_q4.onnx", **sizes, "inputs": inputs, "outputs": outputs}
    choices = {name: generation[name] for name in ("do_sample", "temperature", "top_p")}
    return {"model": model | {"decoder": decoder}, "search": choices | {"top_k": 0, "max_length": length}}
