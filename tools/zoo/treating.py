"""Tools that modify a model's file: optimizers, quantizers, float16, simplifiers, other containers.

`treatments` lists them. Each is a function of `Exported` and the tool's options that writes `target`. They need an
environment with the tools and torch, which some import.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime

__all__ = [
    "Exported",
    "Function",
    "bnb4",
    "brain",
    "branches",
    "converted",
    "dynamic",
    "external",
    "fused",
    "fused_half",
    "half",
    "optimized",
    "packed",
    "prefixed",
    "simplified",
    "slimmed",
    "static",
    "stripped",
    "then",
]

Feeds: TypeAlias = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Exported:
    """An exported model: its file, and the feeds of its runs."""

    path: Path
    runs: Sequence[Feeds]


Function: TypeAlias = Callable[[Exported, Path], None]


def optimized(model: Exported, target: Path, level: str) -> None:
    """Save onnxruntime's optimized graph of a session, without processor-specific layouts (NCHWc)."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    disabled = ["NchwcTransformer"]
    onnxruntime.InferenceSession(
        str(model.path), options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
    )


def fused(model: Exported, target: Path, kind: str, level: int = 1, gpu: bool = False, **more: Any) -> None:
    """Apply onnxruntime.transformers.optimizer for models of `kind`; it detects heads and width."""
    tool = importlib.import_module("onnxruntime.transformers.optimizer")
    fusion = importlib.import_module("onnxruntime.transformers.fusion_options").FusionOptions(kind)
    for name, value in more.items():
        setattr(fusion, name, value)
    made = tool.optimize_model(
        str(model.path), kind, opt_level=level, use_gpu=gpu, only_onnxruntime=False, optimization_options=fusion
    )
    made.save_model_to_file(str(target))


def fused_half(model: Exported, target: Path, kind: str, **options: Any) -> None:
    """Apply `fused`, then its conversion to float16, including inputs and outputs."""
    tool = importlib.import_module("onnxruntime.transformers.optimizer")
    made = tool.optimize_model(str(model.path), kind, opt_level=0, use_gpu=True)
    made.convert_float_to_float16(**options)
    made.save_model_to_file(str(target))


class Batches:
    """Calibration data for onnxruntime: the feeds of the export."""

    def __init__(self, model: Exported) -> None:
        names = {i.name for i in onnx.load(model.path, load_external_data=False).graph.input}
        self.left = [{n: x for n, x in model.runs[0].items() if n in names}]

    def get_next(self) -> Any:
        """Return the next feeds, or None."""
        return self.left.pop() if self.left else None

    def set_range(self, start_index: int, end_index: int) -> None:
        """Required by the base class."""


def prepared(model: Exported, target: Path) -> Exported:
    """Apply the preprocessing that onnxruntime recommends before quantization."""
    ready = target.with_suffix(".ready.onnx")
    quantization = importlib.import_module("onnxruntime.quantization.shape_inference")
    quantization.quant_pre_process(str(model.path), str(ready), skip_symbolic_shape=True)
    return Exported(ready, model.runs)


def static(model: Exported, target: Path, form: str, kinds: str, **options: Any) -> None:
    """Apply quantize_static; `kinds`: types of activation and weight, such as 'U8S8'."""
    quantization = importlib.import_module("onnxruntime.quantization")
    activation, weight = re.findall(r"[US]\d+", kinds)
    types = {letter + bits: getattr(quantization.QuantType, f"Q{name}Int{bits}")
             for letter, name in (("U", "U"), ("S", "")) for bits in ("4", "8", "16")}  # fmt: skip
    reader = type("Reader", (Batches, quantization.CalibrationDataReader), {})
    ready = prepared(model, target)
    quantization.quantize_static(
        str(ready.path),
        str(target),
        reader(ready),
        quant_format=getattr(quantization.QuantFormat, form),
        activation_type=types[activation],
        weight_type=types[weight],
        **options,
    )
    ready.path.unlink()


def dynamic(model: Exported, target: Path, weight: str, **options: Any) -> None:
    """Apply quantize_dynamic."""
    quantization = importlib.import_module("onnxruntime.quantization")
    ready = prepared(model, target)
    quantization.quantize_dynamic(str(ready.path), str(target), weight_type=quantization.QuantType[weight], **options)
    ready.path.unlink()


def packed(model: Exported, target: Path, gather: bool = False, form: str = "QOperator", **options: Any) -> None:
    """Apply MatMulNBitsQuantizer: block-quantized weights of MatMul, and of embedding tables."""
    tool = importlib.import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    formats = importlib.import_module("onnxruntime.quantization").QuantFormat
    if gather:
        options |= {"op_types_to_quantize": ("MatMul", "Gather"), "quant_axes": (("MatMul", 0), ("Gather", 1))}
    proto = onnx.load(model.path)
    made = tool.MatMulNBitsQuantizer(proto, quant_format=formats[form], **options)
    made.process()
    made.model.save_model_to_file(str(target))


def bnb4(model: Exported, target: Path, kind: int, block: int) -> None:
    """Apply MatMulBnb4Quantizer: 0 is FP4, 1 is NF4."""
    tool = importlib.import_module("onnxruntime.quantization.matmul_bnb4_quantizer")
    made = tool.MatMulBnb4Quantizer(onnx.load(model.path), kind, block)
    made.process()
    made.model.save_model_to_file(str(target))


def half(model: Exported, target: Path, module: str = "onnxruntime.transformers.float16", **options: Any) -> None:
    """Convert to float16 by onnxruntime's converter, or by onnxconverter_common's."""
    tool = importlib.import_module(module)
    onnx.save(tool.convert_float_to_float16(onnx.load(model.path), **options), target)


def brain(model: Exported, target: Path) -> None:
    """Apply the float16 converter, then use bfloat16 where it leaves float32."""
    tool = importlib.import_module("onnxruntime.transformers.float16")
    blocked = ["Softmax", "LayerNormalization", "Add"]
    proto = tool.convert_float_to_float16(
        onnx.load(model.path), keep_io_types=True, op_block_list=blocked, use_bfloat16_as_blocked_nodes_dtype=True
    )
    onnx.save(proto, target)


def slimmed(model: Exported, target: Path) -> None:
    """Apply onnxslim."""
    onnx.save(importlib.import_module("onnxslim").slim(onnx.load(model.path)), target)


def simplified(model: Exported, target: Path) -> None:
    """Apply onnxsim."""
    onnx.save(importlib.import_module("onnxsim").simplify(onnx.load(model.path))[0], target)


def converted(model: Exported, target: Path, by: int) -> None:
    """Apply onnx's version converter, `by` opsets up or down."""
    proto = onnx.load(model.path)
    now = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    converter = importlib.import_module("onnx.version_converter")
    onnx.save(converter.convert_version(proto, min(now + by, onnx.defs.onnx_opset_version())), target)


def external(model: Exported, target: Path, one_file: bool) -> None:
    """Store weights as external data, in one file or in a file for each."""
    onnx.save(
        onnx.load(model.path),
        target,
        save_as_external_data=True,
        all_tensors_to_one_file=one_file,
        location=f"{target.stem}.data" if one_file else None,
        size_threshold=100,  # small tensors stay, as onnxruntime reads shapes from the model file
    )


def stripped(model: Exported, target: Path) -> None:
    """Remove exporters' information on values: value_info, names and sizes of dimensions."""
    proto = onnx.load(model.path)
    del proto.graph.value_info[:]
    for value in [*proto.graph.input, *proto.graph.output]:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    onnx.save(proto, target)


def prefixed(model: Exported, target: Path) -> None:
    """Apply onnx.compose: prefix all names except those of inputs, and merge a model that restores output names."""
    proto = onnx.compose.add_prefix(onnx.load(model.path), "body/", rename_inputs=False, rename_outputs=True)
    helper = onnx.helper
    outputs = list(proto.graph.output)
    nodes = [helper.make_node("Identity", [f"tail/{o.name}"], [o.name.removeprefix("body/")]) for o in outputs]
    given, made = [onnx.ValueInfoProto() for _ in outputs], [onnx.ValueInfoProto() for _ in outputs]
    for i, o in enumerate(outputs):
        given[i].CopyFrom(o)
        given[i].name = f"tail/{o.name}"
        made[i].CopyFrom(o)
        made[i].name = o.name.removeprefix("body/")
    tail = helper.make_model(
        helper.make_graph(nodes, "tail", given, made),
        opset_imports=list(proto.opset_import),
        ir_version=proto.ir_version,
    )
    onnx.save(onnx.compose.merge_models(proto, tail, [(o.name, f"tail/{o.name}") for o in outputs]), target)


def branches(model: Exported, target: Path) -> None:
    """Put the model into both branches of an If on an input, as in merged decoders, with shared weights outside."""
    proto = onnx.load(model.path)
    graph, helper = proto.graph, onnx.helper
    kept = {o.name for o in graph.output}

    def branch(suffix: str) -> Any:
        copy = onnx.GraphProto()
        copy.CopyFrom(graph)
        names = {n for node in copy.node for n in node.output if n}
        for node in copy.node:
            node.name += suffix
            node.input[:] = [n + suffix if n in names else n for n in node.input]
            node.output[:] = [n + suffix if n else n for n in node.output]
        del copy.input[:], copy.initializer[:], copy.value_info[:], copy.sparse_initializer[:]
        for value in copy.output:
            value.name += suffix
        copy.name += suffix
        return copy

    if any(a.type == onnx.AttributeProto.GRAPH for node in graph.node for a in node.attribute):
        raise ValueError("models with subgraphs are not supported")
    chosen_ = helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1])
    node = helper.make_node("If", ["use_cache_branch"], [o.name for o in graph.output], "optimum::if",
                            then_branch=branch("/then"), else_branch=branch("/else"))  # fmt: skip
    assert len(kept) == len(graph.output)
    merged = helper.make_graph([node], "merged", [*graph.input, chosen_], graph.output, graph.initializer)
    onnx.save(helper.make_model(merged, opset_imports=list(proto.opset_import), ir_version=proto.ir_version,
                                functions=list(proto.functions)), target)  # fmt: skip


def then(*functions: Function) -> Function:
    """Return the composition of treatments."""

    def run(model: Exported, target: Path) -> None:
        for number, function in enumerate(functions):
            path = target if number == len(functions) - 1 else target.with_suffix(f".{number}.onnx")
            function(model, path)
            model = Exported(path, model.runs)

    return run
