"""User-defined operators.

    @custom_op("my.domain", "Swish2")
    class Swish2(CustomOp):
        beta: float = 1.0                                   # an ONNX attribute
        wgsl = "x / (1.0 + exp(-beta * x))"                 # elementwise, with broadcasting

        def infer(self, x): return (x,)
        def evaluate(self, x): return (x / (1 + np.exp(-self.beta * x)),)

WGSL with an entry point (`@compute fn main`) is a complete kernel. It reads input `x` with `load_x(i)` and writes
output `y` with `store_y(i, v)` (the names of `outputs`). It may declare `struct Params`, whose values `params()`
returns. It runs on `workgroups()` workgroups.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import wraps
from textwrap import dedent
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from pyruntime.errors import InvalidArgument
from pyruntime.ir import TensorType, ValueType
from pyruntime.kernels import Dispatch, Kernel, Target, elementwise, inp, out
from pyruntime.kernels.ir.kernel import bindings
from pyruntime.kernels.wgsl.module import Module
from pyruntime.kernels.wgsl.params import pack
from pyruntime.ops.base import Op, Unsupported, attributes, registered
from pyruntime.ops.registry import names

__all__ = ["CustomOp", "custom_op", "input_names"]

_EVERY_OPSET = range(1, 1 << 30)

CustomClass = TypeVar("CustomClass", bound="type[CustomOp]")


@attributes
class CustomOp(Op):
    """Base of operators defined with `custom_op`. Annotated fields are the ONNX attributes.

    Class attributes:
        wgsl: an expression over the inputs' names, statements that end in `return`, or a complete kernel. Empty: the
            operator runs on the host. The input names are the parameters of `infer` (or else of `evaluate`). Where the
            class defines neither, they are x, x1, x2, ...
        outputs: names of the outputs in a complete kernel.
    """

    wgsl: ClassVar[str] = ""
    outputs: ClassVar[Sequence[str]] = ("y",)
    is_custom: ClassVar[bool] = True

    def infer(self, *inputs: Any) -> Any:
        """Return the output types. Default: one output with the first input's element type and the broadcast shape."""
        tensors = [x for x in inputs if isinstance(x, TensorType)]
        return (TensorType(tensors[0].dtype, tuple(np.broadcast_shapes(*(x.shape for x in tensors)))),)

    def params(self, *inputs: Any) -> Mapping[str, float | int | Sequence[int]]:
        """Return values of `struct Params` fields of a complete kernel. Attributes and `size` are set without it."""
        return {}

    def workgroups(self, *inputs: Any) -> tuple[int, int, int] | None:
        """Return the grid of a complete kernel. Default: one invocation for each element of the first output."""
        return None

    @classmethod
    def has_kernel(cls) -> bool:
        return bool(cls.wgsl) or cls.lower is not CustomOp.lower

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        if not self.wgsl:
            raise Unsupported(f"{self.op_type} has no wgsl")
        types = self.infer(*inputs)
        named = input_names(type(self), len(inputs))
        given = {n: (i, t) for i, (n, t) in enumerate(zip(named, inputs, strict=False)) if t}
        module = Module.of(self.wgsl)
        if module.entry is not None:
            return (self._kernel(target, given, types, inputs),)
        scalars = {k: v for k, v in self._numbers().items() if k in module.names}
        # The generated kernel calls its result y, so an input of that name needs another one there.
        operands = {"y_" if n == "y" else n: inp(i, t) for n, (i, t) in given.items()}
        code = (module.renamed("y", "y_") if "y" in given else module).text.strip()
        return (elementwise(target, self.op_type, operands, out(0, types[0]), code, scalars),)

    def _numbers(self) -> dict[str, float | int]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: v for k, v in values.items() if isinstance(v, int | float)}

    def _kernel(
        self, target: Target, given: Mapping[str, tuple[int, TensorType]], types: Sequence[TensorType], inputs: Any
    ) -> Dispatch:
        results = dict(zip(self.outputs, types, strict=False))
        kernel = Kernel(
            self.op_type,
            dedent(self.wgsl).strip("\n"),
            bindings({n: t.dtype for n, (_, t) in given.items()}, {n: t.dtype for n, t in results.items()}),
        )
        declared = kernel.module.params
        self._check(kernel, input_names(type(self), len(inputs)))
        values = {**self._numbers(), "size": types[0].size, **self.params(*inputs)}
        packed = pack(declared, {n: values[n] for n, _ in declared if n in values}) if declared else b""
        grid = self.workgroups(*inputs) or target.grid(types[0].size, max(1, kernel.module.workgroup_size[0]))
        operands = (*(inp(i, t) for i, t in given.values()), *(out(i, t) for i, t in enumerate(results.values())))
        return Dispatch(kernel, operands, grid, packed)

    def _check(self, kernel: Kernel, named: Sequence[str]) -> None:
        """Raise InvalidGraph or Unsupported for errors that a WGSL compiler would report later and less clearly."""
        module, bound = kernel.module, [b.name for b in kernel.bindings]
        if module.entry is not None and module.entry.name != "main":
            self.fail("an entry point called main", module.entry.name)
        for name, kinds in module.accessors.items():
            used = sorted(f"{kind}_{name}" for kind in kinds if f"{kind}_{name}" not in module.functions)
            if used and name not in bound and name in named:
                raise Unsupported(f"the kernel calls {used[0]}, and the node has no input {name}")
            if used and name not in bound:
                self.fail(f"accessors of the tensors {', '.join(bound)}, or functions that the kernel defines", used[0])


def input_names(cls: type[Op], count: int) -> list[str]:
    """Return the input names: parameters of `infer`, or of `evaluate` where `infer` is inherited; else x, x1, ..."""
    method = cls.infer if _is_own(cls) else cls.evaluate
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = [p.name for p in inspect.signature(method).parameters.values() if p.kind in kinds][1:]
    return named or ["x", *(f"x{i}" for i in range(1, count))]


def _is_own(cls: type[Op]) -> bool:
    return inspect.unwrap(cls.infer) is not inspect.unwrap(CustomOp.infer)


def _typed(infer: Callable[..., Any]) -> Callable[..., tuple[ValueType, ...]]:
    """Wrap `infer` so that it may return a single type, and so that the returned types carry no values."""

    @wraps(infer)
    def checked(self: CustomOp, *inputs: Any) -> tuple[ValueType, ...]:
        types = infer(self, *inputs)
        types = types if isinstance(types, tuple | list) else (types,)
        return tuple(replace(t, source=None) for t in types)

    return checked


@dataclass_transform(frozen_default=True, kw_only_default=True)
def custom_op(domain: str, name: str) -> Callable[[CustomClass], CustomClass]:
    """Register a class as operator `name` of `domain`. A class registered later under the same name replaces it.

    Existing sessions keep the operators they were created with.

    Raises:
        InvalidArgument: `name` is a standard ONNX operator, or the class does not derive from `pyruntime.Op`.
    """
    if domain in ("", "ai.onnx", "ai.onnx.ml") and name in names("" if domain == "ai.onnx" else domain):
        raise InvalidArgument(f"{name} is an operator of {domain or 'ai.onnx'}; choose a custom domain")

    def decorate(cls: CustomClass) -> CustomClass:
        if not (isinstance(cls, type) and issubclass(cls, CustomOp)):
            raise InvalidArgument(f"custom_op: expected a class derived from pyruntime.Op, got {cls!r}")
        attributes(cls)
        cls.infer = _typed(cls.infer)  # type: ignore[method-assign]
        cls.op_type, cls.domain, cls.opsets = name, domain, _EVERY_OPSET
        registered[domain, name] = [cls]
        return cls

    return decorate
