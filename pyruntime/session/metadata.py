"""What a session tells of its model: NodeArg, ModelMetadata."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyruntime.ir import DeclaredTensor, ValueInfo

__all__ = ["ModelMetadata", "NodeArg"]


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
    def of(value: ValueInfo) -> NodeArg:
        """The NodeArg of a declared value."""
        kind = value.type
        shape = list(kind.shape or ()) if isinstance(kind, DeclaredTensor) else []
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
