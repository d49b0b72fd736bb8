"""Models of the onnx package: files on disk, and the node tests it generates."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import onnx
from onnx.backend.test.loader import DATA_DIR

from tests.harness import node_tests

FILES = sorted(Path(DATA_DIR).glob("**/*.onnx"))


def file_id(path: Path) -> str:
    """A short name of a model file."""
    return "/".join(path.relative_to(DATA_DIR).parts[:2])


@lru_cache(maxsize=1)
def node_models() -> dict[str, bytes]:
    """Name to serialised model, for every node test."""
    return {name: case.model.SerializeToString() for name, case in node_tests().items() if case.model}


@lru_cache(maxsize=1)
def tensor_files() -> list[Path]:
    """Every TensorProto file among the test data."""
    return sorted(Path(DATA_DIR).glob("**/*put_*.pb"))


def is_tensor(data: bytes) -> bool:
    """True for a TensorProto; the data files also hold sequences and optionals."""
    proto = onnx.TensorProto()
    try:
        proto.ParseFromString(data)
    except Exception:
        return False
    return proto.data_type != 0
