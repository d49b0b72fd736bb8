"""The geometry of windows that slide over spatial axes: convolution, pooling and their transposes.

Along one axis, output o looks at the input positions  o * stride - begin + k * dilation,  0 <= k < kernel;
positions outside [0, input) are padding. Source: ONNX operators Conv, MaxPool, AveragePool, ConvTranspose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyruntime.ir import upper

__all__ = ["PADDINGS", "Window", "as_volume"]

PADDINGS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
"""Values of the attribute `auto_pad`."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window over each of the spatial axes; every field has one number an axis.

    Attributes:
        input, output: extents. kernel: filter size. strides, dilations: steps.
        begin, end: padding before and after, possibly negative (cropping).
    """

    input: tuple[int, ...]
    output: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.input)

    @property
    def positions(self) -> int:
        """Number of filter positions: the product of the kernel's sizes."""
        return math.prod(self.kernel)

    @property
    def pixels(self) -> int:
        """Number of output positions: the product of the output's sizes."""
        return math.prod(self.output)

    @property
    def extent(self) -> tuple[int, ...]:
        """Input positions from the first filter position to the last: (kernel - 1) * dilation + 1."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def needed(self) -> tuple[int, ...]:
        """Padding after the input that the last window reaches (more than `end` where the size was rounded up)."""
        last = [(o - 1) * s + e for o, s, e in zip(self.output, self.strides, self.extent, strict=True)]
        return tuple(r - i - b for r, i, b in zip(last, self.input, self.begin, strict=True))

    @property
    def is_pointwise(self) -> bool:
        """True where every output looks at the one input of its own position."""
        ones = (1,) * self.rank
        return self.kernel == self.strides == ones and self.output == self.input and not any(self.begin)

    def part(self, axis: int, outputs: slice) -> tuple[slice, Window]:
        """Return the range of inputs along `axis` that a range of outputs reads, and the window over that range."""
        first = outputs.start * self.strides[axis] - self.begin[axis]
        last = (outputs.stop - 1) * self.strides[axis] - self.begin[axis] + self.extent[axis]
        seen = slice(min(max(first, 0), self.input[axis]), min(max(last, 0), self.input[axis]))
        numbers = {"input": seen.stop - seen.start, "output": outputs.stop - outputs.start, "begin": seen.start - first}

        def changed(name: str) -> tuple[int, ...]:
            old = getattr(self, name)
            return (*old[:axis], numbers[name], *old[axis + 1 :])

        return seen, replace(self, **{name: changed(name) for name in numbers})

    @property
    def covers_all(self) -> bool:
        """True where there is one output, and it looks at every input once and at nothing else."""
        ones = (1,) * self.rank
        dense = all(d == 1 or k == 1 for k, d in zip(self.kernel, self.dilations, strict=True))
        return self.output == ones and self.kernel == self.input and dense and not any(self.begin)

    @property
    def at_most(self) -> Window:
        """Return the window with dynamic sizes at their largest, to choose a kernel by; `end` is not meaningful."""
        most = {name: tuple(map(upper, getattr(self, name))) for name in ("input", "output", "begin")}
        return replace(self, **most, end=())

    @property
    def trimmed(self) -> Window:
        """Return the window without the outer filter positions that only ever read padding."""
        kernel, begin = list(self.kernel), list(self.begin)
        for axis, (k, d, b) in enumerate(zip(self.kernel, self.dilations, self.begin, strict=True)):
            last = (self.output[axis] - 1) * self.strides[axis] - b
            first = min(max(0, -(last // d)), k - 1)
            end = min(k, -(-(self.input[axis] + b) // d))
            kernel[axis], begin[axis] = max(end - first, 1), b - first * d
        return replace(self, kernel=tuple(kernel), begin=tuple(begin))

    @staticmethod
    def over(
        input: Sequence[int],
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[int],
        auto_pad: str = "NOTSET",
        ceil: bool | None = None,
    ) -> Window:
        """The window of Conv and the pooling operators.

        output = floor((input + begin + end - extent) / stride) + 1; with `ceil` rounded up, without windows that
        would start past the input. SAME: output = ceil(input / stride), and the padding that takes, split evenly.
        A pooling window larger than the padded input, by less than a stride, sees what is there: one output, as
        onnxruntime rounds towards 0 (with fewer outputs it answers with an empty tensor; here that is an error).

        Args:
            pads: all begins, then all ends; read where `auto_pad` is NOTSET.
            ceil: how a pooling rounds; None: a convolution, whose windows lie in the padded input.

        Raises:
            ValueError: a window does not fit.
        """
        rank = len(input)
        output, begin, end = [], list(pads[:rank]), list(pads[rank:])
        for d in range(rank):
            extent = (kernel[d] - 1) * dilations[d] + 1
            if auto_pad.startswith("SAME"):
                output.append(-(-input[d] // strides[d]))
                total = max(0, (output[d] - 1) * strides[d] + extent - input[d])
                begin[d] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
                end[d] = total - begin[d]
                continue
            if auto_pad == "VALID":
                begin[d] = end[d] = 0
            spare = input[d] + begin[d] + end[d] - extent
            if spare < 0 and (ceil is None or -spare >= strides[d] or input[d] < 1):
                raise ValueError(f"a window of {extent} does not fit {input[d]} + {begin[d]} + {end[d]} (axis {d + 2})")
            steps = -(-spare // strides[d]) if ceil or spare < 0 else spare // strides[d]
            if steps * strides[d] >= input[d] + begin[d] and steps > spare // strides[d]:
                steps -= 1
            output.append(steps + 1)
        return Window(
            tuple(input), tuple(output), tuple(kernel), tuple(strides), tuple(dilations), tuple(begin), tuple(end)
        )

    @staticmethod
    def transposed(
        small: Sequence[int],
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[int],
        auto_pad: str = "NOTSET",
        output_padding: Sequence[int] = (),
        output_shape: Sequence[int] = (),
    ) -> Window:
        """The window of ConvTranspose, as that of the convolution it transposes: `output` is `small`, `input` large.

        input = stride * (small - 1) + output_padding + extent - begin - end. Where it is given (`output_shape`), or
        SAME asks for stride * small, the padding follows from it.
        """
        rank = len(small)
        adjust = tuple(output_padding) or (0,) * rank
        large, begin, end = [], list(pads[:rank]), list(pads[rank:])
        for d in range(rank):
            full = strides[d] * (small[d] - 1) + adjust[d] + (kernel[d] - 1) * dilations[d] + 1
            if output_shape or auto_pad.startswith("SAME"):
                large.append(output_shape[d] if output_shape else min(full, small[d] * strides[d]))
                total = max(0, full - large[d])
                begin[d] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
                end[d] = full - large[d] - begin[d]
                continue
            if auto_pad == "VALID":
                begin[d] = end[d] = 0
            large.append(full - begin[d] - end[d])
            if large[d] <= 0:
                raise ValueError(f"padding {begin[d]} + {end[d]} leaves nothing of {full} (axis {d + 2})")
        return Window(
            tuple(large), tuple(small), tuple(kernel), tuple(strides), tuple(dilations), tuple(begin), tuple(end)
        )


def as_volume(window: Window) -> Window:
    """The same window over three axes: missing ones in front, of extent 1.

    Raises:
        ValueError: more than three spatial axes.
    """
    missing = 3 - window.rank
    if missing < 0:
        raise ValueError(f"kernels slide over at most 3 spatial axes, not {window.rank}")
    ones, zeros = (1,) * missing, (0,) * missing
    return Window(
        ones + window.input,
        ones + window.output,
        ones + window.kernel,
        ones + window.strides,
        ones + window.dilations,
        zeros + window.begin,
        zeros + window.end,
    )
