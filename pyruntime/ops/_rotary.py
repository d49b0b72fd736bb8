"""What operators with rotary embeddings share."""

from __future__ import annotations

from pyruntime.errors import RuntimeException
from pyruntime.ir import Array, TensorType
from pyruntime.ops.base import Op

__all__ = ["Rotary", "check_positions", "pair_code"]


class Rotary(Op):
    """An operator that reads caches of angles at positions. GPUs clamp these: what the host knows of them it checks."""

    def positions(self, *inputs: TensorType | None) -> tuple[int, int, int] | None:
        """The input that has positions, the rows of the caches, and how many rows are read from each position on.

        None where no input has positions.
        """
        raise NotImplementedError(f"{self.op_type}.positions")


def check_positions(positions: Array, rows: int) -> None:
    """Raise RuntimeException where a position is none of the caches' rows."""
    import numpy as np

    wrong = (positions < 0) | (positions >= rows)
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0].tolist())
        raise RuntimeException(
            f"rotary embedding: expected positions in [0, {rows - 1}], the rows of the caches, "
            f"got {positions[where]} at {list(where)} of the positions; give fewer tokens or larger caches"
        )


def pair_code(rank: int, interleaved: bool) -> str:
    """Statements for element i of x: its number `c` in the head and its value `own`, returned where it stays as it is.

    Then `token`, in the order of [B, S], the number `j` of its pair, whether it is the `one` with minus, and the index
    of the `other`.
    Reads params size_d, heads, length, half, for x [B, S, H·D] (rank 3) or [B, H, S, D].
    """
    token = "i / (params.size_d * params.heads)"
    if rank == 4:
        token = f"{token[:-1]} * params.length) * params.length + i / params.size_d % params.length"
    pair = """let one = c < params.half;
  let j = select(c - params.half, c, one);
  let other = select(i - params.half, i + params.half, one);"""
    if interleaved:
        pair = """let one = (c & 1u) == 0u;
  let j = c / 2u;
  let other = select(i - 1u, i + 1u, one);"""
    return f"""
  let c = i % params.size_d;
  let own = load_x(i);
  if (c >= 2u * params.half) {{ return own; }}
  let token = {token};
  {pair}"""
