"""WGSL modules read once: what is found in texts written here, in all templates, and in what is made of them."""

from __future__ import annotations

import pytest

from pyruntime.ir import DType
from pyruntime.kernels.ir.kernel import Binding, Kernel
from pyruntime.kernels.ir.template import template, tensors_of
from pyruntime.kernels.wgsl.library import shader_names
from pyruntime.kernels.wgsl.module import Module
from pyruntime.kernels.wgsl.storage import lanes
from tests.kernels.template_variants import variants_of

TEXT = """
// fn gone(x: f32) -> f32 { return load_gone(x); }
struct Params {
  size: u32,            // elements; struct Params is read once
  places: array<vec4<u32>, 2>,
  scale: f32,           // the last
}
/* struct Old { a: u32 } var<workgroup> none: u32; hidden[0] */
struct Pair { a: f32, @align(16) b: vec4<f32> }
alias T = f32;
const SIZE: u32 = 4u * 16u;
override wide = 2;
var<workgroup> tile: array<vec4<T>, SIZE>;
var<private> seed: u32;

fn finish(value: T, channel: u32, index: u32) -> T {
  // nothing yet
  return value;
}

fn twice(x: T, of: ptr<function, array<f32, 4>>) -> T { return 2.0 * (*of)[0] * x; }

fn nothing() { }

@compute @workgroup_size(SIZE, 2)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(workgroup_id) wid: vec3<u32>) {
  const n = 3u;
  for (var i = 0u; i < params.size; i++) { store4_y(i, load_x(i), load4_x(i).x, tile [i].x, params.places[0].x); }
  atomicMax(&marks[gid.x], 1u);
}
"""


def test_module__of_a_text__is_what_it_says() -> None:
    module = Module.of(TEXT)
    assert module is Module.of(TEXT)
    assert module.params == (("size", "u32"), ("places", "array<vec4<u32>, 2>"), ("scale", "f32"))
    assert module.structs["Pair"] == (("a", "f32"), ("b", "vec4<f32>"))
    assert set(module.declared) == {
        *("Params", "Pair", "T", "SIZE", "wide", "tile", "seed"),
        *("finish", "twice", "nothing", "main"),
    }
    assert module.workgroup == (("tile", "array<vec4<T>, SIZE>"),)
    assert module.accessors == {"x": {"load", "load4"}, "y": {"store4"}}
    assert module.indexed == {"tile", "marks"}
    assert module.addressed == {"marks"}
    assert not {"gone", "Old", "hidden", "none"} & module.names.keys()
    assert module.entry is not None
    assert (module.entry.name, module.entry.size) == ("main", ("SIZE", "2"))
    assert (module.workgroup_size, module.invocations, module.workgroup_bytes) == ((64, 2, 1), 128, 1024)


def test_indexed__names_of_any_length__and_what_is_pointed_to() -> None:
    long = "a" * 100
    blank = " " * 200
    module = Module.of(
        f"let v = {long}[0] + b{blank}[1] + c /* {long} */ [2] + p.d[3] + f(&e, & g[0]) + (h & k) + 1[0];"
    )
    assert module.indexed - {""} == {long, "b", "c", "e", "g"}


def test_module__functions__have_signatures_bodies_and_places() -> None:
    module = Module.of(TEXT)
    finish, twice = module.functions["finish"], module.functions["twice"]
    assert finish.signature == "fn finish(value: T, channel: u32, index: u32) -> T"
    assert twice.parameters == (("x", "T"), ("of", "ptr<function, array<f32, 4>>"))
    assert module.functions["nothing"].signature == "fn nothing()"
    assert list(module.hooks) == ["finish"], "a comment is nothing that is done"
    assert TEXT[slice(*twice.span)] == module.declared["twice"]
    start, end = module.functions["main"].span
    assert TEXT[start:end].startswith("fn main(") and TEXT[end - 1] == "}"


def test_with_function__hook__is_no_hook_any_more() -> None:
    made = Module.of(TEXT).with_function("finish", "fn finish(value: T, channel: u32, index: u32) -> T { return 0.0; }")
    assert not made.hooks
    assert made.functions["twice"] == Module.of(made.text).functions["twice"]
    assert made.text.count("fn finish") == 1
    with pytest.raises(KeyError):
        made.with_function("gone", "")


def test_with_fields__comments_and_missing_commas__stay_right() -> None:
    added = (("alpha", "f32"), ("rows", "vec4<u32>"))
    for text in (
        TEXT,
        "struct Params { a: u32 }",
        "struct Params {\n  a: u32 // last\n}\nfn f() { }\n}",
        "struct Params { }",
    ):
        module = Module.of(text)
        made = module.with_fields(added)
        assert made.params == (*module.params, *added)
        assert made.code.count(",") >= len(made.params) - 1
    assert (
        "  scale: f32,           // the last\n  alpha: f32,\n  rows: vec4<u32>,\n}"
        in Module.of(TEXT).with_fields(added).text
    )
    with pytest.raises(ValueError, match="struct Params"):
        Module.of("fn f() { }").with_fields(added)


def test_renamed__names__not_members_and_comments() -> None:
    module = Module.of("return y + v.y + y1; // y\nlet a = y.y;")
    assert module.renamed("y", "y_").text == "return y_ + v.y + y1; // y\nlet a = y_.y;"
    assert module.renamed("z", "w") is module


def test_module__of_nothing__has_nothing() -> None:
    module = Module.of("")
    assert (module.entry, module.params, module.workgroup, module.resources) == (None, (), (), ())
    assert not module.has_params and not module.declared and not module.names


def test_extensions__said_or_implied__stand_in_front_once() -> None:
    text = "enable f16, subgroups;\nenable f16; // twice\n\nfn f(x: f32) -> f32 { return subgroupAdd(x) + load_x(0u); }"
    assert Module.of(text).extensions == ("f16", "subgroups")
    assert Module.of("// enable f16;\nfn f(x: f32) { let s = subgroupAdd(x); }").extensions == ("subgroups",)
    assert Module.of("let subgroupAdd = 1; let enable = 2;").extensions == ()
    whole = Kernel("k", text, (Binding("x", DType.FLOAT),)).wgsl()
    assert whole.startswith("enable f16;\n\nenable subgroups;\n\n") and whole.count("enable") == 2
    assert Module.of("fn f() { }").without_directives() is Module.of("fn f() { }")


def test_resources__of_a_whole_shader__are_read_with_group_and_number() -> None:
    text = """@group(0) @binding(0) var<storage, read_write> x: array<vec4<f32>>;
@group(1) @binding( 3u ) var<storage,read> y : array< u32 >;
@group(0) @binding(1) var<uniform> params: Params; // @group(0) @binding(2) var<uniform> no: u32;"""
    found = [(r.group, r.binding, r.space, r.access, r.name, r.type) for r in Module.of(text).resources]
    assert found == [
        (0, 0, "storage", "read_write", "x", "array<vec4<f32>>"),
        (1, 3, "storage", "read", "y", "array< u32 >"),
        (0, 1, "uniform", "", "params", "Params"),
    ]


@pytest.mark.parametrize("name", shader_names())
def test_templates__every_variant__is_read_as_it_is_declared(name: str) -> None:
    """What the module says, against what `//#tensors` and the kernel say."""
    reads, writes = tensors_of(name)
    for defines, types in variants_of(name):
        kernel = template(name, types, **defines)
        for b in kernel.bindings:
            if "store" in kernel.accessors(b.name) and lanes(b.dtype) > 1:
                kernel = kernel.with_dtype(b.name, DType.FLOAT)
        body, whole = kernel.module, Module(kernel.wgsl())
        assert body.entry is not None and body.entry.name == "main"
        assert all(part.isdigit() or set(part.split()) - set("*+-/") for part in body.entry.size)
        assert whole.entry == body.entry and whole.params == body.params and whole.workgroup == body.workgroup
        assert not body.resources
        storage = [r for r in whole.resources if r.space == "storage"]
        assert [r.name for r in storage] == [b.name for b in kernel.bindings]
        assert [r.binding for r in whole.resources] == list(range(len(whole.resources)))
        assert len(whole.resources) - len(storage) == body.has_params
        used = {n: {k for k in kinds if f"{k}_{n}" not in body.functions} for n, kinds in body.accessors.items()}
        assert {n for n in used if used[n]} <= {*reads, *writes}
        assert {n for n in used if any(k.startswith("store") for k in used[n])} <= set(writes)
        called = {n for n in whole.names if f"{n}(" in whole.code}
        local = {n for n in called if n.startswith(("load_", "load4_", "store_", "store4_"))}
        assert local <= set(whole.functions), "every accessor that is called is there"
        braces = whole.code.count("{"), whole.code.count("}")
        assert braces[0] == braces[1] >= len(whole.functions)


def test_has_params__named_in_a_comment_alone__is_none() -> None:
    assert not Kernel("k", "// struct Params is not here\nfn f() { }", ()).has_params
    assert Kernel("k", "struct  Params { a: u32 }", ()).has_params


PARTS = ("names", "accessors", "indexed", "declared", "functions", "structs", "hooks", "workgroup", "workgroup_bytes")


@pytest.mark.parametrize("name", shader_names())
def test_changed_modules__every_template__are_known_as_if_read_anew(name: str) -> None:
    for defines, types in variants_of(name):
        module = template(name, types, **defines).module
        changed = [module.with_fields((("extra", "vec4<u32>"), ("scale", "f32")))] if module.has_params else []
        for hook in module.hooks.values():
            helper = "struct Pair { a: f32, b: u32 }\nvar<workgroup> shared_pair: array<Pair, 4>;"
            other = f"{helper}\n{hook.signature} {{\n  let more = load_other(3u); // names no one\n  return more;\n}}"
            changed += [m.with_function(hook.name, other) for m in (module, *changed[:1])]
        for one in changed:
            fresh = Module(one.text)
            assert one.code == fresh.code
            for part in PARTS:
                assert getattr(one, part) == getattr(fresh, part), part
