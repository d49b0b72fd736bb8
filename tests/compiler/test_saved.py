"""Plans as files: what is written comes back, and what is broken is refused."""

from __future__ import annotations

import asyncio
import json
import random
import struct
import zlib
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyruntime.cli import main
from pyruntime.compiler.plan import GpuSegment, Plan
from pyruntime.compiler.saved import BLOCK, FORMAT, ExternalFile, ModelFile, read, tree_hash, write
from pyruntime.compiler.verify import verify
from pyruntime.device.null import NullDevice
from pyruntime.errors import EPFail, InvalidArgument, NoSuchFile, OrtError
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Target
from pyruntime.onnx.formats.source import MemorySource, open_file
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.aot.cached_plan import cached_plan_file
from pyruntime.session.aot.compile_ahead import compile_model
from pyruntime.session.run.program import Program
from pyruntime.target.named import profiles, read_target
from tests import open_models
from tests.loop_models import LOOPS
from tests.models import text_model

ROOT = Path(__file__).parents[2]
DIGITS, ENLARGE = ROOT / "models" / "digits.onnx", ROOT / "models" / "enlarge3.onnx"
SHAPES: dict[str, list[tuple[int, ...]]] = {"image": [(2, 1, 16, 16), (5, 1, 16, 16)]}
INT64 = TensorProto.INT64


def saved_model(folder: Path, name: str) -> tuple[Path, dict[str, list[tuple[int, ...]]]]:
    """A model of the set, with the shapes it is compiled for."""
    match name:
        case "digits":
            return DIGITS, {}
        case "digits of any number":
            return DIGITS, SHAPES
        case "enlarge3":
            return ENLARGE, {}
        case "computed weights":
            path = folder / "computed.onnx"
            onnx.save(computed_weights(), path)
            return path, {}
        case "loop":
            path = folder / "loop.onnx"
            onnx.save(text_model(LOOPS["states"][0]), path)
            return path, {"x": [(2, 3), (5, 3)], "z": [(2, 2), (5, 2)]}
        case _:
            path = folder / "encoder.onnx"
            onnx.save(open_models.encoder(), path)
            return path, {n: [(2, 6), (2, 11)] for n in input_names(path)}


def input_names(path: Path) -> list[str]:
    graph = onnx.load(path).graph
    return [v.name for v in graph.input]


def computed_weights() -> onnx.ModelProto:
    """x @ (w + w.T), the sum of more than 64 KiB: a computed constant."""
    w = np.random.default_rng(0).random((160, 160), np.float32)
    nodes = [
        helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0]),
        helper.make_node("Add", ["w", "turned"], ["sum"]),
        helper.make_node("MatMul", ["x", "sum"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 160]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


MODELS = ["digits", "digits of any number", "enlarge3", "computed weights", "encoder", "loop"]


def run_data(plan: Plan) -> tuple[object, ...]:
    """What a run takes of a plan, constants as bytes."""
    constants = [(str(c.type), bytes(c.raw())) for c in plan.constants]
    return plan.steps, plan.shaders, constants, plan.arenas, plan.params, plan.external, plan.expressions, plan.patches


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_round_trip__models__equal_bytes_and_a_plan_that_holds(tmp_path: Path, name: str, inside: bool) -> None:
    path, shapes = saved_model(tmp_path, name)
    made = compile_model(path, shapes, inside=inside)
    assert compile_model(path, shapes, inside=inside) == made, "compiling twice"
    source = open_file(path)
    saved = read(made, source)
    assert write(saved, source) == made
    plans = [*saved.computed, *(p.plan for p in saved.programs)]
    assert bool(saved.computed) == (name == "computed weights")
    assert (saved.programs[0].sizes is not None) == bool(shapes)
    for plan in plans:
        verify(plan)
    again = read(write(saved, source), source)
    assert list(map(run_data, plans)) == [run_data(p) for p in (*again.computed, *(p.plan for p in again.programs))]


def test_read__digits__is_the_plan_that_was_made() -> None:
    source = open_file(DIGITS)
    program = Program(import_model(read_model(source)).graph, NullDevice())
    stage = asyncio.run(program.prepare({"image": TensorType(DType.FLOAT, (1, 1, 16, 16))}, ["probabilities"]))
    assert stage is not None
    assert run_data(read(compile_model(DIGITS), source).programs[0].plan) == run_data(stage.compiled.plan)


def split_digits(folder: Path) -> Path:
    """The digits model with its weights in another file."""
    path = folder / "split.onnx"
    model = onnx.load(DIGITS)
    onnx.save_model(
        model, path, save_as_external_data=True, location="data/weights.bin", size_threshold=64, convert_attribute=False
    )
    return path


def test_compile__weights_in_another_file__are_named_by_it_or_put_inside(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = split_digits(tmp_path)
    weights = tmp_path / "data" / "weights.bin"
    made, whole = compile_model(path), compile_model(path, inside=True)
    source, data = open_file(path), open_file(weights)
    saved = read(made, source, [data])
    assert saved.files == [ExternalFile("data/weights.bin", data.size, tree_hash(data, data.size))]
    assert write(saved, source, [data]) == made
    assert read(whole, source).files == []
    assert len(whole) - len(made) > 0.9 * data.size
    plan, other = (p.programs[0].plan for p in (saved, read(whole, source)))
    assert [c.raw() for c in plan.constants] == [c.raw() for c in other.constants]
    weights.unlink()
    with pytest.raises(NoSuchFile, match=r"weights\.bin"):
        compile_model(path)


def test_tree_hash__two_blocks__is_the_hash_of_their_hashes() -> None:
    data = bytes(range(256)) * (BLOCK // 256) + b"rest"
    blocks = sha256(data[:BLOCK]).digest() + sha256(data[BLOCK:]).digest()
    assert tree_hash(MemorySource(data), len(data)) == sha256(blocks).hexdigest()


def test_round_trip__weights_in_two_files__are_named_by_file_and_place() -> None:
    random = np.random.default_rng(1)
    values = [random.random((8, 8), np.float32) for _ in range(2)]
    data = [bytes(pad) + v.tobytes() for pad, v in zip((4, 4), values, strict=True)]
    files = {
        ExternalFile(n, len(d), tree_hash(MemorySource(d), len(d))): MemorySource(d)
        for n, d in zip("ab", data, strict=True)
    }
    tensors = [
        TensorProto(name=f"w{n}", dims=(8, 8), data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
        for n in "ab"
    ]
    for tensor in tensors:
        tensor.external_data.add(key="location", value=tensor.name[1:])
        tensor.external_data.add(key="offset", value="4")
    nodes = [helper.make_node("MatMul", ["x", "wa"], ["h"]), helper.make_node("MatMul", ["h", "wb"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 8]) for n in "xy")
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], tensors)).SerializeToString()
    source = MemorySource(model)
    external = {f.path: s for f, s in files.items()}
    program = Program(import_model(read_model(source), external).graph, NullDevice())
    stage = asyncio.run(program.prepare({"x": TensorType(DType.FLOAT, (3, 8))}, ["y"]))
    assert stage is not None
    known = ModelFile(source.size, tree_hash(source, source.size))
    outputs = [{"name": "y", "type": "float32", "shape": [3, 8]}]
    decoder = {"positions": 8, "rows": {}, "local": None}
    made = cached_plan_file(program, source, known, [], outputs, None, files, decoder)
    assert made is not None
    given = list(files.values())
    saved = read(made, source, given)
    assert saved.files == list(files)
    assert saved.decoder == decoder
    assert [c.source for c in saved.programs[0].plan.constants] == given
    assert run_data(saved.programs[0].plan) == run_data(stage.compiled.plan)
    assert cached_plan_file(program, source, known, [], outputs, made, files, decoder) == made
    with pytest.raises(InvalidArgument, match="give these"):
        read(made, source).programs[0].plan.constants[0].raw()


def broken_plans() -> list[tuple[str, bytes]]:
    """Plans that are cut off, flipped, of other versions, or have lengths that cannot be."""
    plan, random_ = compile_model(DIGITS), random.Random(17)
    made = [
        (f"first {n} bytes", plan[:n]) for n in (0, 1, 7, 8, 20, 55, 56, 57, *range(100, len(plan), len(plan) // 30))
    ]
    made += [("bytes after it", plan + b"\0"), ("version 0", plan[:8] + bytes(4) + plan[12:])]
    made += [(f"version {v}", plan[:8] + struct.pack("<I", v) + plan[12:]) for v in (1, 255, 2**32 - 1)]
    for field in range(8, 24, 4):
        made += [
            (f"head at {field}", plan[:field] + struct.pack("<I", n) + plan[field + 4 :]) for n in (0, 2**31, 2**32 - 1)
        ]
    for _ in range(60):
        at, bit = random_.randrange(len(plan)), 1 << random_.randrange(8)
        made.append((f"bit {bit} of byte {at}", plan[:at] + bytes([plan[at] ^ bit]) + plan[at + 1 :]))
    return made


WHOLE = compile_model(DIGITS)
BROKEN = [pair for pair in broken_plans() if pair[1] != WHOLE]


@pytest.mark.parametrize("data", [data for _, data in BROKEN], ids=[name for name, _ in BROKEN])
def test_read__broken_plan__is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="plan"):
        read(data)


@pytest.mark.parametrize(
    "text", [b"{}", b"[]", b"null", b"{", b'"plan"', b'{"model":{}}', b"[" * 100000], ids=lambda text: str(text[:12])
)
def test_read__right_hash_over_another_header__is_refused(text: bytes) -> None:
    packed = zlib.compress(text, 9)
    head = struct.pack("<8sIIII32s", b"pyrtplan", FORMAT, len(packed), len(text), 0, sha256(packed).digest())
    with pytest.raises(InvalidArgument, match="damaged"):
        read(head + packed)


def save(path: Path, nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto]) -> str:
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", inputs, [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return str(path)


def test_compile__values_wanted__is_refused_with_the_next_step(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    shape = helper.make_tensor_value_info("shape", INT64, [1])
    path = save(tmp_path / "expand.onnx", [helper.make_node("Expand", ["x", "shape"], ["y"])], [x, shape])
    with pytest.raises(EPFail, match="create the session without a plan"):
        compile_model(path)


def test_compile__nonzero__names_the_node(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"], name="finder"),
        helper.make_node("Cast", ["where"], ["y"], to=TensorProto.FLOAT),
    ]
    with pytest.raises(EPFail, match="finder"):
        compile_model(save(tmp_path / "nonzero.onnx", nodes, [x]))


def test_command__shapes_given_twice__leaves_them_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "digits.plan"
    shapes = ["--shape", "image=2,1,16,16", "--shape", "image=5,1,16,16"]
    assert main(["compile", str(DIGITS), "-o", str(out), *shapes]) == 0
    assert "dispatches" in capsys.readouterr().out
    assert out.read_bytes() == compile_model(DIGITS, SHAPES)
    plan = read(out.read_bytes()).programs[0].plan
    assert isinstance(plan.steps[0], GpuSegment) and plan.steps[0].uploads[0].scaled[0] >= 0


@pytest.mark.parametrize(
    "arguments",
    [["--shape", "image=1,x"], ["--shape", "picture=1"], ["--shape", "image=1,1,8,8"], ["--target", "/nowhere.json"]],
)
def test_command__wrong_arguments__are_told(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["compile", str(DIGITS), "-o", str(tmp_path / "x.plan"), *arguments]) == 1
    assert arguments[0].removeprefix("--") in capsys.readouterr().err.replace("input", "shape")


def test_read_target__limits_below_the_guaranteed__are_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text('{"limits": {"storage_buffers": 4}}')
    with pytest.raises(OrtError, match="guarantees"):
        read_target(str(file))
    file.write_text('{"limits": {"storage_buffers": 10}, "features": ["subgroups"], "vendor": "nvidia"}')
    assert read_target(str(file)).limits.storage_buffers == 10


@pytest.mark.parametrize("name", profiles())
def test_profile__each__is_a_target_that_models_are_compiled_for(name: str) -> None:
    target = read_target(name)
    saved = read(compile_model(DIGITS, target=target), open_file(DIGITS))
    assert saved.target == {
        "limits": asdict(target.limits),
        "features": sorted(target.features),
        "vendor": target.vendor,
    }
    data = json.loads((ROOT / "pyruntime" / "target" / "profiles" / f"{name}.json").read_text())
    assert data["about"] and data["source"], "says what it is for, and where its numbers are from"
    rows = (ROOT / "docs" / "ahead-of-time.md").read_text().splitlines()
    (row,) = [r.split("|") for r in rows if r.startswith(f"| `{name}` |")]
    limits = target.limits
    buffer = f"{limits.buffer_bytes >> 20} MiB" if limits.buffer_bytes < 1 << 30 else f"{limits.buffer_bytes >> 30} GiB"
    told = [cell.strip() for cell in row[3:7]]
    assert told == [
        f"{limits.workgroup_bytes >> 10} KiB",
        f"{limits.invocations:,}",
        buffer,
        target.vendor or "any",
    ]


# Dawn, native/Limits.cpp: what Chromium reports is one of these.
TIERS = {
    "storage_buffers": (8, 10),
    "binding_bytes": (128 << 20, 512 << 20, 1 << 30, (2 << 30) - 4, (4 << 30) - 4),
    "buffer_bytes": (256 << 20, 1 << 30, 2 << 30, 4 << 30),
    "invocations": (128, 256, 1024),
    "workgroup_x": (128, 256, 1024),
    "workgroup_bytes": (16384, 32768, 49152, 65536),
}


@pytest.mark.parametrize("name", profiles())
def test_profile__limits__are_tiers_that_browsers_report(name: str) -> None:
    limits = asdict(read_target(name).limits)
    assert {key: limits[key] in tiers for key, tiers in TIERS.items()} == dict.fromkeys(TIERS, True)
    assert limits["binding_bytes"] <= limits["buffer_bytes"]


def test_profile__default__is_what_every_core_device_has(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert read_target("default") == Target()
    with pytest.raises(OrtError, match="neither a file nor one of the profiles " + ", ".join(profiles())):
        read_target("toaster")
    out = tmp_path / "digits.plan"
    assert main(["compile", str(DIGITS), "-o", str(out), "--target", "nvidia"]) == 0
    assert out.read_bytes() == compile_model(DIGITS, target=read_target("nvidia"))
    assert read(out.read_bytes()).target["vendor"] == "nvidia"
