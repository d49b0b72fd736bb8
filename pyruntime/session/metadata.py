"""What a session tells of its model: NodeArg, ModelMetadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyruntime.ir import DeclaredTensor, ValueInfo
from pyruntime.onnx.importer.model import ImportedModel
from pyruntime.session.options import SessionOptions

__all__ = ["ModelMetadata", "NodeArg", "dimension_sizes"]


@dataclass(frozen=True, slots=True)
class NodeArg:
    """Name, type and shape of a graph input or output.

    Attributes:
        type: 'tensor(float)', 'seq(tensor(int64))', ...
        shape: a size, a symbol, or None a dimension; empty for anything but tensors.
    """

    name: str
    type: str
    shape: list[int | str | None]

    @staticmethod
    def of(value: ValueInfo, sizes: Mapping[str, int] | None = None) -> NodeArg:
        """Make the NodeArg of a declared value, with the symbols in `sizes` replaced."""
        kind, sizes = value.type, sizes or {}
        dims = list(kind.shape or ()) if isinstance(kind, DeclaredTensor) else []
        shape = [sizes.get(d, d) if isinstance(d, str) else d for d in dims]
        return NodeArg(value.name, str(kind) if kind is not None else "", shape)

    def __str__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """ModelProto's own words about the model."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


def dimension_sizes(model: ImportedModel, options: SessionOptions) -> dict[str, int]:
    """Sizes of symbolic dimensions that the options fix, by name or by denotation; names win."""
    sizes: dict[str, int] = {}
    for value in model.graph.inputs:
        dims = value.type.shape if isinstance(value.type, DeclaredTensor) else None
        for dim, denotation in zip(dims or (), model.denotations.get(value.name, ()), strict=False):
            size = options.free_dimension_overrides_by_denotation.get(denotation)
            if isinstance(dim, str) and size is not None:
                sizes[dim] = size
    return {**sizes, **options.free_dimension_overrides}
