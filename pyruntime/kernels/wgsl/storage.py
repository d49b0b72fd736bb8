"""How tensors are stored on the GPU, and the WGSL that reads and writes their elements.

A tensor is its raw_data in 32-bit words. For a binding `x` a kernel may use

    load_x(i)                 element i, in the compute type (f32, i32, u32, bool, vec2<u32>)
    load4_x(g)                elements 4g .. 4g+3 as vec4 of the compute type (types of 8 to 32 bits)
    store_x(i, v)             element i := v (types of 32 and 64 bits only: smaller ones share words)
    store4_x(g, v0..v3)       elements 4g .. 4g+3 (8 bits and more)
    store8_x, store16_x       the same for 4- and 2-bit types, one word
    x[i]                      the array itself, for kernels written for one type
    half_x(i), half4_x(g)     element i, elements 4g .. 4g+3 of a float16 tensor as f16: where WGSL has `enable f16`
    atomicMax(&x[i], v)       and similar, on i32 and u32: the array is then declared atomic and has no other accessors

and gets the accessors it mentions. A tensor larger than a device's binding is several arrays: its accessors find that
which has an index, and `x[i]` is not for it. f16, bf16 and float8 are rounded to nearest even at the store.

f16 is read bit by bit, or (`convert`) by unpack2x16float: the same numbers, but that WGSL lets a device read subnormals
as zero. Stores never convert so: WGSL does not say which way that rounds. With `enable f16` it may be declared as what
it is (`halves`): then single elements can be stored, rounded before they are converted.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from pyruntime.ir import DType

__all__ = [
    "accessors",
    "atomic_store",
    "bits_type",
    "group",
    "is_grouped",
    "is_half",
    "lanes",
    "part_names",
    "rounded",
    "selected",
    "word_type",
]

_FLOAT8 = {
    DType.FLOAT8E4M3FN: "e4m3fn",
    DType.FLOAT8E4M3FNUZ: "e4m3fnuz",
    DType.FLOAT8E5M2: "e5m2",
    DType.FLOAT8E5M2FNUZ: "e5m2fnuz",
    DType.FLOAT8E8M0: "e8m0",
    DType.FLOAT4E2M1: "e2m1",
}


def bits_type(dtype: DType) -> DType:
    """The unsigned type of the same width: kernels that only move elements are shared by all types of a width."""
    return DType[f"UINT{dtype.bits}"]


def lanes(dtype: DType) -> int:
    """Elements in a 32-bit word; 1 for types of 32 bits and more."""
    return max(1, 32 // dtype.bits)


def group(dtype: DType) -> int:
    """Elements one invocation of a generated kernel makes: 4, or a whole word of a smaller type."""
    return max(4, lanes(dtype))


def word_type(dtype: DType, used: Set[str], halves: bool = False) -> str:
    """The element type of the WGSL array with these accessors: words, f16, or four elements where they are grouped.

    Args:
        halves: float16 tensors are declared as f16.
    """
    grouped = is_grouped(used)
    if is_half(dtype, used, halves):
        return "vec4<f16>" if grouped else "f16"
    if dtype.bits == 64:
        return "vec2<u32>"
    if dtype.bits == 32:
        return f"vec4<{dtype.compute}>" if grouped else dtype.compute
    return "vec2<u32>" if grouped and dtype.bits == 16 else "u32"


def _unpack(dtype: DType, word: str, lane: str) -> str:
    """WGSL for lane `lane` (a u32 expression) of the u32 expression `word`, in the compute type."""
    if dtype is DType.FLOAT16:
        return f"f16_decode(extractBits({word}, {lane} * 16u, 16u))"
    if dtype is DType.BFLOAT16:
        return f"bitcast<f32>(extractBits({word}, {lane} * 16u, 16u) << 16u)"
    bits = f"{lane} * {dtype.bits}u, {dtype.bits}u"
    if dtype in _FLOAT8:
        return f"{_FLOAT8[dtype]}_decode(extractBits({word}, {bits}))"
    if dtype is DType.BOOL:
        return f"(extractBits({word}, {bits}) != 0u)"
    return f"extractBits(bitcast<i32>({word}), {bits})" if dtype.is_signed else f"extractBits({word}, {bits})"


def _pack(dtype: DType, value: str, lane: int) -> str:
    """WGSL u32 with `value` (compute type) encoded in lane `lane` of a word, zero elsewhere."""
    if dtype is DType.FLOAT16:
        bits = f"f16_encode({value})"
    elif dtype is DType.BFLOAT16:
        bits = f"bf16_encode({value})"
    elif dtype in _FLOAT8:
        bits = f"{_FLOAT8[dtype]}_encode({value})"
    elif dtype is DType.BOOL:
        bits = f"select(0u, 1u, {value})"
    else:
        cast = f"bitcast<u32>({value})" if dtype.is_signed else value
        bits = f"({cast} & {(1 << dtype.bits) - 1}u)"
    return f"({bits} << {lane * dtype.bits}u)" if lane else bits


def rounded(dtype: DType, value: str) -> str:
    """WGSL of `value`, of the compute type of `dtype`, as a store gives it back: rounded or wrapped to `dtype`."""
    if lanes(dtype) == 1 or dtype is DType.BOOL:
        return value
    return _unpack(dtype, f"({_pack(dtype, value, 0)})", "0u")


def _load(dtype: DType, name: str, var: str, grouped: bool, convert: bool) -> str:
    n = lanes(dtype)
    if n == 1:
        element = f"{var}[i >> 2u][i & 3u]" if grouped and dtype.bits == 32 else f"{var}[i]"
    else:
        shift = n.bit_length() - 1
        word = f"{var}[i >> 2u][(i >> 1u) & 1u]" if grouped and dtype.bits == 16 else f"{var}[i >> {shift}u]"
        if convert and dtype is DType.FLOAT16:
            element = f"unpack2x16float({word} >> ((i & 1u) * 16u)).x"
        else:
            element = _unpack(dtype, word, f"(i & {n - 1}u)")
    return f"fn load_{name}(i: u32) -> {dtype.compute} {{ return {element}; }}"


def _load4(dtype: DType, name: str, var: str, convert: bool) -> str:
    vec = f"vec4<{dtype.compute}>"
    if dtype.bits == 32:
        return f"fn load4_{name}(g: u32) -> {vec} {{ return {var}[g]; }}"
    if convert and dtype is DType.FLOAT16:
        parts = [f"unpack2x16float(w[{k}])" for k in range(2)]
    elif dtype.bits == 16:
        parts = [_unpack(dtype, f"w[{k // 2}]", f"{k % 2}u") for k in range(4)]
    elif dtype.bits == 8:
        parts = [_unpack(dtype, "w", f"{k}u") for k in range(4)]
    else:
        raise ValueError(f"load4 is for types of 8 to 32 bits, not {dtype.onnx_name}")
    return f"fn load4_{name}(g: u32) -> {vec} {{\n  let w = {var}[g];\n  return {vec}({', '.join(parts)});\n}}"


def _store_group(dtype: DType, name: str, var: str, count: int) -> str:
    args = ", ".join(f"v{k}: {dtype.compute}" for k in range(count))
    values = [f"v{k}" for k in range(count)]
    if dtype.bits == 64:
        body = " ".join(f"{var}[g * 4u + {k}u] = {v};" for k, v in enumerate(values))
    elif dtype.bits == 32:
        body = f"{var}[g] = vec4<{dtype.compute}>({', '.join(values)});"
    elif dtype.bits == 16:
        words = [" | ".join(_pack(dtype, values[2 * w + k], k) for k in range(2)) for w in range(2)]
        body = f"{var}[g] = vec2<u32>({', '.join(words)});"
    else:
        body = f"{var}[g] = {' | '.join(_pack(dtype, v, k) for k, v in enumerate(values))};"
    return f"fn store{count}_{name}(g: u32, {args}) {{ {body} }}"


def part_names(name: str, count: int) -> list[str]:
    """The names of `count` arrays that a tensor is bound as: its own where there is one."""
    return [name] if count == 1 else [f"{name}_part{k}" for k in range(count)]


def accessors(name: str, var: str, dtype: DType, used: Set[str], convert: bool = False, halves: bool = False) -> str:
    """WGSL of the accessors `used` ('load', 'store4', ...) of binding `name`, stored in array `var`.

    Args:
        convert: float16 is read by unpack2x16float. halves: float16 tensors are declared as f16.
    """
    grouped = is_grouped(used)
    if is_half(dtype, used, halves):
        return _half_accessors(name, var, dtype, used)
    made = []
    if "load" in used:
        made.append(_load(dtype, name, var, grouped, convert))
    if "load4" in used:
        made.append(_load4(dtype, name, var, convert))
    if "store" in used:
        if lanes(dtype) > 1:
            raise ValueError(f"store_{name}: elements of {dtype.onnx_name} share words; use store4_{name}")
        target = f"{var}[i >> 2u][i & 3u]" if grouped and dtype.bits == 32 else f"{var}[i]"
        made.append(f"fn store_{name}(i: u32, v: {dtype.compute}) {{ {target} = v; }}")
    for count in (4, 8, 16):
        if f"store{count}" in used:
            made.append(_store_group(dtype, name, var, count))
    return "\n".join(made)


def selected(name: str, parts: Sequence[str], dtype: DType, used: Set[str], part_bytes: int) -> str:
    """WGSL of the accessors of a tensor in `parts`, each of `part_bytes` but the last, which have theirs."""
    return "\n".join(_select(a, name, parts, dtype, part_bytes * 8 // dtype.bits) for a in sorted(used))


def _select(accessor: str, name: str, parts: Sequence[str], dtype: DType, elements: int) -> str:
    """The accessor that calls that of the part which an index is in; each part but the last has so many `elements`."""
    action = accessor.rstrip("0123456789")
    count = int(accessor.removeprefix(action) or 1)
    values = [f"v{k}" for k in range(count)] if action == "store" else []
    element = "f16" if action == "half" else dtype.compute
    kind = element if count == 1 else f"vec4<{element}>"
    result, give = ("", "") if values else (f" -> {kind}", "return ")
    ways = []
    for number, part in enumerate(parts):
        at = number * (elements // count)
        call = f"{give}{accessor}_{part}({', '.join((f'i - {at}u', *values))});"
        condition = f"if (i < {at + elements // count}u) " if part != parts[-1] else ""
        ways.append(f"{condition}{{ {call} }}")
    given = ", ".join(("i: u32", *(f"{v}: {dtype.compute}" for v in values)))
    return f"fn {accessor}_{name}({given}){result} {{\n  {' else '.join(ways)}\n}}"


def _half_accessors(name: str, var: str, dtype: DType, used: Set[str]) -> str:
    """The accessors of a tensor that is declared as f16. What is stored is rounded before it is converted."""
    if dtype is not DType.FLOAT16:
        raise ValueError(f"half_{name}: for float16 tensors, not {dtype.onnx_name}")
    element = f"{var}[i >> 2u][i & 3u]" if is_grouped(used) else f"{var}[i]"
    given = ", ".join(f"v{k}: f32" for k in range(4))
    near = ", ".join(f"f16_near(v{k})" for k in range(4))
    texts = {
        "half": f"fn half_{name}(i: u32) -> f16 {{ return {element}; }}",
        "half4": f"fn half4_{name}(g: u32) -> vec4<f16> {{ return {var}[g]; }}",
        "load": f"fn load_{name}(i: u32) -> f32 {{ return f32({element}); }}",
        "load4": f"fn load4_{name}(g: u32) -> vec4<f32> {{ return vec4<f32>({var}[g]); }}",
        "store": f"fn store_{name}(i: u32, v: f32) {{ {element} = f16(f16_near(v)); }}",
        "store4": f"fn store4_{name}(g: u32, {given}) {{ {var}[g] = vec4<f16>(vec4<f32>({near})); }}",
    }
    return "\n".join(text for kind, text in texts.items() if kind in used)


def atomic_store(name: str, var: str) -> str:
    """`store_x` of float16 in an array of atomic words: no other invocation changes the bits of an element."""
    return (
        f"fn store_{name}(i: u32, v: f32) {{\n  let shift = (i & 1u) * 16u;\n"
        f"  atomicAnd(&{var}[i >> 1u], 0xffff0000u >> shift);\n"
        f"  atomicOr(&{var}[i >> 1u], f16_encode(v) << shift);\n}}"
    )


def is_grouped(used: Set[str]) -> bool:
    """True where these accessors read or write four elements at a time."""
    return not used.isdisjoint(("load4", "store4", "half4"))


def is_half(dtype: DType, used: Set[str], halves: bool = False) -> bool:
    """True for a tensor that is declared as f16: its elements are read as such, or (`halves`) all of float16 are."""
    return (halves and dtype is DType.FLOAT16) or not used.isdisjoint(("half", "half4"))
