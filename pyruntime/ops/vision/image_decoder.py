"""ImageDecoder: decode an image file to pixels. Source: ONNX operator ImageDecoder."""

from __future__ import annotations

import importlib
import io
from typing import Annotated, Any

import numpy as np

from pyruntime import errors
from pyruntime.ir import Array, DType, TensorType, ValueType, of_element
from pyruntime.ops.base import LATEST, Op, op

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError:
        raise errors.NotImplemented(
            "ImageDecoder needs the package Pillow: `pip install pillow`, in Pyodide `await loadPackage('pillow')`"
        ) from None


@op("ImageDecoder", opsets=range(20, LATEST + 1))
class ImageDecoder(Op):
    """encoded_stream: uint8 [n], the bytes of a file; y: uint8 [height, width, channels].

    Decodes BMP, JPEG, JPEG 2000, TIFF, PNG, WebP and PNM with Pillow. Invalid images give [0, 0, channels].

    Raises:
        NotImplemented: Pillow is not installed.
        RuntimeException: the image exceeds Pillow's pixel limit.
    """

    data_dependent = True
    pixel_format: Annotated[str, "RGB", "BGR", "Grayscale"] = "RGB"

    def infer(self, encoded_stream: TensorType) -> tuple[ValueType, ...]:
        if encoded_stream.dtype is not DType.UINT8 or encoded_stream.rank != 1:
            self.fail("a stream uint8[n]", encoded_stream)
        return (of_element(DType.UINT8, self.evaluate(encoded_stream.value())[0]),)

    def evaluate(self, encoded_stream: Array) -> tuple[Array, ...]:
        pillow = _pillow()
        mode = _MODES[self.pixel_format]
        try:
            with pillow.open(io.BytesIO(encoded_stream.tobytes())) as image:
                pixels = np.asarray(image.convert(mode))
        except pillow.DecompressionBombError as error:
            raise errors.RuntimeException(f"{self.op_type}: {error}") from error
        except (OSError, SyntaxError, ValueError):
            return (np.zeros((0, 0, len(mode)), np.uint8),)
        pixels = pixels.reshape(*pixels.shape[:2], len(mode))
        return (pixels[:, :, ::-1] if self.pixel_format == "BGR" else pixels,)
