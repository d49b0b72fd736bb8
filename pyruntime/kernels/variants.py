"""Names of kernel variants, which a session config entry `pyruntime.disable` can switch off one by one.

Results stay equal up to rounding. `Target.allows(name)` is where a choice asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyruntime.kernels.attention.candidates import ATTENTIONS
from pyruntime.kernels.convolution.candidates import CONVOLUTIONS
from pyruntime.kernels.products.candidates import PRODUCTS
from pyruntime.kernels.products.packed_dot import DOTS
from pyruntime.kernels.rows.groups_candidates import GROUP_NORMS
from pyruntime.kernels.rows.reduce_candidates import REDUCTIONS
from pyruntime.kernels.rows.rows_candidates import SOFTMAX

__all__ = ["VARIANTS"]

VARIANTS: Mapping[str, str] = MappingProxyType(
    {
        "less_memory": "nodes in another order where activations then need less memory; without: in the model's",
        "shared_memory": "activations share memory; without: a buffer for each, so that dispatches may overlap",
        "read_only_constants": "kernels bind constants as memory that is only read; without: as all other memory",
        "shared_kernels": "a kernel that the plan has already, at little cost; without: the cheapest of each problem",
        "dynamic_dimensions": "plans for all sizes of dynamic dimensions; without: one for each set of input shapes",
        "software": "kernels for adapters that run on a processor; without: those for GPUs",
        "fallback_kernels": "new sessions begin with kernels that compile fast, the others follow; without: they wait",
        "half_loads": "float16 read by the device's own conversion, where it is a GPU; without: bit by bit",
        "attention_flash": "attention as one kernel; without: products around a softmax",
        "attention_prepare": "queries, keys and values made ready in one dispatch; without: one for each",
        "attention_new_row": "attention of one query makes it and the newest row ready; without: a kernel before it",
        **ATTENTIONS.switches,
        **PRODUCTS.switches,
        "matmul_norm": "the kernel that adds those shares normalises too; without: a kernel of its own",
        "integer_skinny": "int8 products of at most eight rows read the weights once; without: by tiles",
        "integer_large": "int8 products in tiles of 64 x 64; without: of 32 x 32",
        "normed_skinny": "skinny products normalise the rows that they read; without: a separate kernel does",
        "merging_skinny": "skinny products reduce the partial results of attention; without: attention_merge does",
        **DOTS.switches,
        "packed_skinny": "products of at most eight rows read packed weights once; without: by tiles",
        "subgroup_sums": "sums, extrema and norms across invocations by shuffles; without: through workgroup memory",
        **CONVOLUTIONS.switches,
        **GROUP_NORMS.switches,
        **SOFTMAX.switches,
        **REDUCTIONS.switches,
        "transpose_tiled": "transposes through workgroup memory; without: element by element",
    }
)
"""Name, what it is, and what runs without it."""
