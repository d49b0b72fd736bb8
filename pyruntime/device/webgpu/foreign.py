"""Copies between a device's buffers and GPUBuffers that the page created."""

from __future__ import annotations

from pyruntime.device.webgpu.javascript import JsException, JsObject, js_object
from pyruntime.errors import InvalidArgument

__all__ = ["copy_foreign"]


async def copy_foreign(
    device: JsObject, foreign: JsObject, source: JsObject, target: JsObject, nbytes: int, complaint: str
) -> None:
    """Copy the first `nbytes` bytes, rounded up to words, from one GPUBuffer to another.

    Args:
        foreign: the one of the two that the page created.

    Raises:
        InvalidArgument: the page's buffer is too small, of another device or lacks a usage; begins with `complaint`.
    """
    words = (nbytes + 3) & ~3
    if int(foreign.size) < words:
        raise InvalidArgument(f"{complaint}: the buffer has {int(foreign.size):,} bytes, the tensor {words:,}")
    device.pushErrorScope("validation")
    try:
        encoder = device.createCommandEncoder()
        encoder.copyBufferToBuffer(source, 0, target, 0, words)
        device.queue.submit(js_object([encoder.finish()]))
    except JsException as thrown:
        raise InvalidArgument(f"{complaint}: {thrown.message}") from None
    finally:
        scope = device.popErrorScope()
    error = await scope
    if error:
        raise InvalidArgument(
            f"{complaint}: {error.message}; make the buffer on env.webgpu.device, with usage COPY_SRC | COPY_DST"
        )
