"""What people do to a model's file before they load it: optimisers, quantisers, float16, simplifiers, other containers.

Each treatment is a function of `Exported` that writes `target`; `TREATMENTS` has them by name, with the models that
they are for. They are the tools' own code: what a tool refuses is the tool's, what onnxruntime runs then is to run here.
Runs where torch is (some tools import it).
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime

__all__ = ["TREATMENTS", "Exported", "Treatment", "chosen"]

Feeds: TypeAlias = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Exported:
    """A model that was exported: its file, and the feeds of its runs."""

    path: Path
    runs: Sequence[Feeds]


Function: TypeAlias = Callable[[Exported, Path], None]


@dataclass(frozen=True)
class Treatment:
    """A treatment.

    Attributes:
        kind: how near results have to be: 'same' (float32, other order), 'half' (float16 or bfloat16), 'steps'
            (activations are rounded to steps of a quantisation; who sums in another order takes another step).
        models: a pattern of the definitions' names; everyone where it is empty.
    """

    name: str
    run: Function
    kind: str = "same"
    models: str = ""

    def applies(self, name: str) -> bool:
        """Whether it is for the model of this name."""
        return re.fullmatch(self.models, name) is not None if self.models else True


def optimized(model: Exported, target: Path, level: str) -> None:
    """onnxruntime's own optimisation of a session, written to a file; without the layout of one processor (NCHWc)."""
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
    """onnxruntime.transformers.optimizer for models of `kind`; heads and width as it finds them."""
    tool = importlib.import_module("onnxruntime.transformers.optimizer")
    fusion = importlib.import_module("onnxruntime.transformers.fusion_options").FusionOptions(kind)
    for name, value in more.items():
        setattr(fusion, name, value)
    made = tool.optimize_model(
        str(model.path), kind, opt_level=level, use_gpu=gpu, only_onnxruntime=False, optimization_options=fusion
    )
    made.save_model_to_file(str(target))


def fused_half(model: Exported, target: Path, kind: str, **options: Any) -> None:
    """`fused`, then its conversion to float16, inputs and outputs too."""
    tool = importlib.import_module("onnxruntime.transformers.optimizer")
    made = tool.optimize_model(str(model.path), kind, opt_level=0, use_gpu=True)
    made.convert_float_to_float16(**options)
    made.save_model_to_file(str(target))


class Batches:
    """What onnxruntime's calibration reads: the feeds of the export."""

    def __init__(self, model: Exported) -> None:
        names = {i.name for i in onnx.load(model.path, load_external_data=False).graph.input}
        self.left = [{n: x for n, x in model.runs[0].items() if n in names}]

    def get_next(self) -> Any:
        """The next feeds, or None."""
        return self.left.pop() if self.left else None

    def set_range(self, start_index: int, end_index: int) -> None:
        """As its base class has it."""


def prepared(model: Exported, target: Path) -> Exported:
    """What onnxruntime asks to be run before a quantiser."""
    ready = target.with_suffix(".ready.onnx")
    quantization = importlib.import_module("onnxruntime.quantization.shape_inference")
    quantization.quant_pre_process(str(model.path), str(ready), skip_symbolic_shape=True)
    return Exported(ready, model.runs)


def static(model: Exported, target: Path, form: str, kinds: str, **options: Any) -> None:
    """quantize_static; `kinds`: activation and weight, as 'U8S8'."""
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
    """quantize_dynamic."""
    quantization = importlib.import_module("onnxruntime.quantization")
    ready = prepared(model, target)
    quantization.quantize_dynamic(str(ready.path), str(target), weight_type=quantization.QuantType[weight], **options)
    ready.path.unlink()


def packed(model: Exported, target: Path, gather: bool = False, form: str = "QOperator", **options: Any) -> None:
    """MatMulNBitsQuantizer: weights of products (and tables of embeddings) in blocks."""
    tool = importlib.import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    formats = importlib.import_module("onnxruntime.quantization").QuantFormat
    if gather:
        options |= {"op_types_to_quantize": ("MatMul", "Gather"), "quant_axes": (("MatMul", 0), ("Gather", 1))}
    proto = onnx.load(model.path)
    made = tool.MatMulNBitsQuantizer(proto, quant_format=formats[form], **options)
    made.process()
    made.model.save_model_to_file(str(target))


def bnb4(model: Exported, target: Path, kind: int, block: int) -> None:
    """MatMulBnb4Quantizer: 0 is FP4, 1 is NF4."""
    tool = importlib.import_module("onnxruntime.quantization.matmul_bnb4_quantizer")
    made = tool.MatMulBnb4Quantizer(onnx.load(model.path), kind, block)
    made.process()
    made.model.save_model_to_file(str(target))


def half(model: Exported, target: Path, module: str = "onnxruntime.transformers.float16", **options: Any) -> None:
    """float16 by onnxruntime's converter, or that of onnxconverter_common."""
    tool = importlib.import_module(module)
    onnx.save(tool.convert_float_to_float16(onnx.load(model.path), **options), target)


def brain(model: Exported, target: Path) -> None:
    """float16's converter, with bfloat16 for what it leaves in float32 otherwise."""
    tool = importlib.import_module("onnxruntime.transformers.float16")
    blocked = ["Softmax", "LayerNormalization", "Add"]
    proto = tool.convert_float_to_float16(
        onnx.load(model.path), keep_io_types=True, op_block_list=blocked, use_bfloat16_as_blocked_nodes_dtype=True
    )
    onnx.save(proto, target)


def slimmed(model: Exported, target: Path) -> None:
    """onnxslim."""
    onnx.save(importlib.import_module("onnxslim").slim(onnx.load(model.path)), target)


def simplified(model: Exported, target: Path) -> None:
    """onnxsim."""
    onnx.save(importlib.import_module("onnxsim").simplify(onnx.load(model.path))[0], target)


def converted(model: Exported, target: Path, by: int) -> None:
    """onnx's version converter, `by` opsets up or down."""
    proto = onnx.load(model.path)
    now = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    converter = importlib.import_module("onnx.version_converter")
    onnx.save(converter.convert_version(proto, min(now + by, onnx.defs.onnx_opset_version())), target)


def external(model: Exported, target: Path, one_file: bool) -> None:
    """Weights in a file beside the model, or in one for each."""
    onnx.save(
        onnx.load(model.path),
        target,
        save_as_external_data=True,
        all_tensors_to_one_file=one_file,
        location=f"{target.stem}.data" if one_file else None,
        size_threshold=0,
        convert_attribute=True,
    )


def stripped(model: Exported, target: Path) -> None:
    """Without what exporters say of values: no value_info, dimensions of inputs and outputs without names or numbers."""
    proto = onnx.load(model.path)
    del proto.graph.value_info[:]
    for value in [*proto.graph.input, *proto.graph.output]:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    onnx.save(proto, target)


def prefixed(model: Exported, target: Path) -> None:
    """onnx.compose: every name gets a prefix but those of inputs and outputs; what ends in them is merged on."""
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
    """The model in both branches of an If on an input, as decoders are merged: weights outside, shared by both."""
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
        raise ValueError("graphs within graphs are not renamed")
    chosen_ = helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1])
    node = helper.make_node("If", ["use_cache_branch"], [o.name for o in graph.output], "optimum::if",
                            then_branch=branch("/then"), else_branch=branch("/else"))  # fmt: skip
    assert len(kept) == len(graph.output)
    merged = helper.make_graph([node], "merged", [*graph.input, chosen_], graph.output, graph.initializer)
    onnx.save(helper.make_model(merged, opset_imports=list(proto.opset_import), ir_version=proto.ir_version,
                                functions=list(proto.functions)), target)  # fmt: skip


def then(*functions: Function) -> Function:
    """One treatment behind the other."""

    def run(model: Exported, target: Path) -> None:
        for number, function in enumerate(functions):
            path = target if number == len(functions) - 1 else target.with_suffix(f".{number}.onnx")
            function(model, path)
            model = Exported(path, model.runs)

    return run


p = functools.partial

TEXT = r"(?!clip|siglip_|.*vision|dinov|wav|hubert|whisper).*"
_FUSED: Mapping[str, str] = {
    "bert": r".*bert.*|electra|ernie|esm|mpnet|layoutlm|xlm.*|tapas|data2vec.*|roformer|distil.*",
    "gpt2": r"gpt.*|codegen|bloom|opt|biogpt|imagegpt|xglm|ctrl|decision_transformer",
    "gpt_neox": r"gpt_neox.*|llama.*|stablelm|persimmon",
    "phi": r"phi.*",
    "qwen3": r"qwen.*|llama.*|mistral|gemma.*|smollm3|olmo.*",
    "bart": r"bart.*|mbart|m2m_100|marian|pegasus|blenderbot.*|whisper|speech_to_text|trocr|plbart|mvp",
    "t5": r".*t5.*|switch_transformers",
    "vit": r"vit.*|deit|beit|dinov.*|ijepa|vision_transformer.*|.*vision.*|hubert|wav2vec2.*|audio-spec.*|videomae|vivit",
    "swin": r".*swin.*|nest|maxvit.*",
    "clip": r".*clip.*|siglip.*|owlvit|blip|git",
    "conformer": r".*conformer|wav2vec2-bert|parakeet_ctc",
    "sam2": r"sam.*|hieradet.*|hiera|vitdet|vision_transformer_sam",
    "tnlr": r"deberta.*|wavlm|.*bert.*",
    "unet": r"UNet.*|ControlNet.*|Transformer2D.*|res(net|nest).*",
    "vae": r"Auto.*|Consistency.*|VQ.*",
    "mmdit": r"SD3.*|DiT.*",
}


def _fusions() -> list[Treatment]:
    made = []
    for kind, models in _FUSED.items():
        for level in (0, 1, 2, 99):
            made.append(Treatment(f"fused_{kind}_{level}", p(fused, kind=kind, level=level), models=models))
        made.append(Treatment(f"fused_{kind}_gpu", p(fused, kind=kind, level=0, gpu=True), models=models))
        plain = {"use_multi_head_attention": True, "enable_bias_splitgelu": True}
        made.append(Treatment(f"fused_{kind}_mha", p(fused, kind=kind, level=0, gpu=True, **plain), models=models))
        made.append(Treatment(f"fused_{kind}_half", p(fused_half, kind=kind), "half", models))
        made.append(
            Treatment(f"fused_{kind}_then_all", then(p(fused, kind=kind, level=0), p(optimized, level="ALL")), models=models)
        )
        made.append(
            Treatment(f"fused_{kind}_then_dynamic", then(p(fused, kind=kind, level=0), p(dynamic, weight="QInt8")),
                      "steps", models)
        )  # fmt: skip
    return made


_STATIC: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "qdq_u8s8": ("QDQ", "U8S8", {}),
    "qdq_u8u8_channels": ("QDQ", "U8U8", {"per_channel": True}),
    "qdq_s8s8_channels": ("QDQ", "S8S8", {"per_channel": True, "extra_options": {"ActivationSymmetric": True}}),
    "qdq_u8s8_weights": ("QDQ", "U8S8", {"extra_options": {"AddQDQPairToWeight": True, "DedicatedQDQPair": True}}),
    "qdq_u8s8_kept": ("QDQ", "U8S8", {"reduce_range": True, "per_channel": True,
                                      "extra_options": {"QDQKeepRemovableActivations": True}}),
    "qdq_u8s8_bias": ("QDQ", "U8S8", {"extra_options": {"QuantizeBias": False}}),
    "qdq_u16s8": ("QDQ", "U16S8", {"extra_options": {"UseQDQContribOps": True}}),
    "qdq_u16u16": ("QDQ", "U16U16", {}),
    "qdq_s16s16": ("QDQ", "S16S16", {"extra_options": {"ActivationSymmetric": True}}),
    "qdq_u16u4": ("QDQ", "U16U4", {}),
    "qdq_u8s4_channels": ("QDQ", "U8S4", {"per_channel": True}),
    "qop_u8u8": ("QOperator", "U8U8", {}),
    "qop_u8s8_channels": ("QOperator", "U8S8", {"per_channel": True, "reduce_range": True}),
    "qop_s8s8": ("QOperator", "S8S8", {"extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True}}),
    "qop_u8s8_all": ("QOperator", "U8S8", {"extra_options": {"MatMulConstBOnly": False,
                                                              "ForceQuantizeNoInputCheck": True}}),
}  # fmt: skip
_DYNAMIC: Mapping[str, dict[str, Any]] = {
    "dynamic_s8": {"weight": "QInt8"},
    "dynamic_u8_channels": {"weight": "QUInt8", "per_channel": True},
    "dynamic_s8_reduced": {"weight": "QInt8", "per_channel": True, "reduce_range": True},
    "dynamic_u8_both": {"weight": "QUInt8", "extra_options": {"MatMulConstBOnly": False}},
    "dynamic_s8_symmetric": {"weight": "QInt8", "extra_options": {"WeightSymmetric": False, "ActivationSymmetric": True}},
}
_PACKED: Mapping[str, dict[str, Any]] = {
    "nbits_4_16": {"bits": 4, "block_size": 16},
    "nbits_4_32_symmetric": {"bits": 4, "block_size": 32, "is_symmetric": True, "accuracy_level": 0},
    "nbits_4_32_level1": {"bits": 4, "block_size": 32, "accuracy_level": 1},
    "nbits_4_64_level4": {"bits": 4, "block_size": 64, "accuracy_level": 4},
    "nbits_4_256": {"bits": 4, "block_size": 256},
    "nbits_4_gather": {"bits": 4, "block_size": 32, "gather": True},
    "nbits_8_32": {"bits": 8, "block_size": 32},
    "nbits_8_128_symmetric": {"bits": 8, "block_size": 128, "is_symmetric": True},
    "nbits_2_32": {"bits": 2, "block_size": 32},
    "nbits_4_qdq": {"bits": 4, "block_size": 32, "form": "QDQ"},
    "nbits_4_qdq_symmetric": {"bits": 4, "block_size": 16, "form": "QDQ", "is_symmetric": True, "gather": True},
    "nbits_8_qdq": {"bits": 8, "block_size": 32, "form": "QDQ"},
    "nbits_4_qdq_channels": {"bits": 4, "block_size": 32, "form": "QDQ", "channel_wised_quantize": True},
}


def _all() -> dict[str, Treatment]:
    common = "onnxconverter_common.float16"
    made = [Treatment(f"ort_{level.lower()}", p(optimized, level=level)) for level in ("BASIC", "EXTENDED", "ALL")]
    made += _fusions()
    for name, (form, kinds, options) in _STATIC.items():
        quantize = p(static, form=form, kinds=kinds, **options)
        made.append(Treatment(name, quantize, "steps"))
        for level in ("EXTENDED", "ALL"):
            made.append(Treatment(f"{name}_then_{level.lower()}", then(quantize, p(optimized, level=level)), "steps"))
    for name, options in _DYNAMIC.items():
        made.append(Treatment(name, p(dynamic, **options), "steps"))
        made.append(Treatment(f"{name}_then_all", then(p(dynamic, **options), p(optimized, level="ALL")), "steps"))
    for name, options in _PACKED.items():
        kind = "steps" if options.get("accuracy_level") == 4 else "same"
        made.append(Treatment(name, p(packed, **options), kind))
        if "qdq" in name:
            made.append(Treatment(f"{name}_then_all", then(p(packed, **options), p(optimized, level="ALL")), "steps"))
    made += [
        Treatment("bnb4_fp4", p(bnb4, kind=0, block=64)),
        Treatment("bnb4_nf4", p(bnb4, kind=1, block=32)),
        Treatment("half", half, "half"),
        Treatment("half_kept_io", p(half, keep_io_types=True), "half"),
        Treatment("half_blocked", p(half, keep_io_types=True, op_block_list=["LayerNormalization", "Softmax"]), "half"),
        Treatment("half_forced", p(half, force_fp16_initializers=True, op_block_list=[]), "half"),
        Treatment("half_common", p(half, module=common), "half"),
        Treatment("half_common_kept_io", p(half, module=common, keep_io_types=True), "half"),
        Treatment("half_then_all", then(half, p(optimized, level="ALL")), "half"),
        Treatment("half_then_nbits", then(half, p(packed, bits=4, block_size=32)), "half"),
        Treatment("brain", brain, "half"),
        Treatment("slimmed", slimmed),
        Treatment("simplified", simplified),
        Treatment("opset_up", p(converted, by=3)),
        Treatment("opset_latest", p(converted, by=99)),
        Treatment("opset_down", p(converted, by=-2)),
        Treatment("external_one", p(external, one_file=True)),
        Treatment("external_many", p(external, one_file=False)),
        Treatment("stripped", stripped),
        Treatment("prefixed", prefixed),
        Treatment("branches", branches),
    ]
    return {t.name: t for t in made}


TREATMENTS: Mapping[str, Treatment] = _all()


def chosen(model: str, names: Sequence[str] = ()) -> list[Treatment]:
    """The treatments for a model, of these names (or patterns) where there are any."""
    patterns = [re.compile(name) for name in names]
    return [
        t
        for t in TREATMENTS.values()
        if t.applies(model) and (not patterns or any(r.fullmatch(t.name) for r in patterns))
    ]
