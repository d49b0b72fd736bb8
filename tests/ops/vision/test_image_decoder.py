"""ImageDecoder on the host: the cases need Pillow, which is optional in the runtime too."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest

from pyruntime import errors
from pyruntime.ops.vision.image_decoder import ImageDecoder
from tests.harness import make_op, run_op
from tests.oracle import node_of

needs_pillow = pytest.mark.skipif(importlib.util.find_spec("PIL") is None, reason="Pillow is not installed")


@needs_pillow
@pytest.mark.parametrize(("pixel_format", "channels"), [("RGB", 3), ("BGR", 3), ("Grayscale", 1)])
def test_image_decoder__not_an_image__empty(pixel_format: str, channels: int) -> None:
    stream = np.frombuffer(b"\x89PNG\r\n\x1a\n no image", np.uint8)
    op = make_op(node_of("ImageDecoder", [stream], pixel_format=pixel_format), {"": 20})
    assert run_op(op, [stream])[0].shape == (0, 0, channels)


def test_image_decoder__no_pillow__says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(errors.NotImplemented, match="needs the package Pillow"):
        ImageDecoder().evaluate(np.zeros(3, np.uint8))


def test_image_decoder__unknown_format__invalid_graph() -> None:
    stream = np.zeros(3, np.uint8)
    with pytest.raises(errors.InvalidGraph, match="pixel_format"):
        run_op(make_op(node_of("ImageDecoder", [stream], pixel_format="CMYK"), {"": 20}), [stream])
