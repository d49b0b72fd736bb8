"""CategoryMapper: map strings to integers or vice versa. Source: ONNX operator ai.onnx.ml.CategoryMapper."""

from __future__ import annotations

from pyruntime.ir import TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.ml.label_encoder import translated
from pyruntime.ops.ml.shared import ALL


@op("CategoryMapper", domain="ai.onnx.ml", opsets=ALL)
class CategoryMapper(Decomposed):
    """y = cats_int64s[i] where x = cats_strings[i], or vice versa for integers; else the default."""

    cats_int64s: tuple[int, ...] | None = None
    cats_strings: tuple[str, ...] | None = None
    default_int64: int = -1
    default_string: str = "_Unused"

    def expand(self, body: Expansion, x: TensorType) -> tuple[TensorType | None, ...]:
        numbers, texts = self.cats_int64s or (), self.cats_strings or ()
        if len(numbers) != len(texts):
            self.fail("as many cats_int64s as cats_strings", f"{self.cats_int64s} and {self.cats_strings}")
        return translated(self, body, x, texts, numbers)
