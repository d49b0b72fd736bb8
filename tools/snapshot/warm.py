"""In Pyodide: import what sessions need, and plan a model once, which fills the caches that all models share."""

import gc
import importlib
import sys
import types
import zipimport
from pathlib import Path


class OnDemand(types.ModuleType):
    """A C extension module of NumPy that is imported on first use."""

    def __getattr__(self, name: str) -> object:
        import importlib
        import sys

        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


sys.modules["numpy.linalg._umath_linalg"] = OnDemand("numpy.linalg._umath_linalg")

import pyruntime  # noqa: E402
import pyruntime.bridge.requests  # noqa: E402
from pyruntime.ir import DType, TensorType  # noqa: E402
from pyruntime.kernels.selection import candidates  # noqa: E402

# Importing the first two runs a program; few pages need the others, which are imported on first use.
LEFT_OUT = (
    "pyruntime.__main__",
    "pyruntime.backend",
    "pyruntime.capi",
    "pyruntime.cli",
    "pyruntime.compiler.rewriting",
    "pyruntime.compiler.size_nodes",
    "pyruntime.compiler.wasm_module",
    "pyruntime.device.desktop",
    "pyruntime.genai",
    "pyruntime.generate",
    "pyruntime.kernels.fourier",
    "pyruntime.kernels.samples",
    "pyruntime.kernels.wasm",
    "pyruntime.onnx.graph_writer",
    "pyruntime.onnx.importer.gradient",
    "pyruntime.ops.attention.flex_attention",
    "pyruntime.ops.convolution.causal_conv_with_state",
    "pyruntime.ops.convolution.col2im",
    "pyruntime.ops.convolution.deform_conv",
    "pyruntime.ops.convolution.lp_pool",
    "pyruntime.ops.convolution.max_unpool",
    "pyruntime.ops.custom",
    "pyruntime.ops.elementwise.bit_shift",
    "pyruntime.ops.elementwise.experimental",
    "pyruntime.ops.indexing.tensor_scatter",
    "pyruntime.ops.indexing.unique",
    "pyruntime.ops.microsoft.attention.decoder_masked_multi_head_attention",
    "pyruntime.ops.microsoft.attention.mrotary_embedding",
    "pyruntime.ops.microsoft.attention.q_attention",
    "pyruntime.ops.microsoft.attention.sparse_attention",
    "pyruntime.ops.microsoft.crop_and_resize",
    "pyruntime.ops.microsoft.dynamic_time_warping",
    "pyruntime.ops.microsoft.experts",
    "pyruntime.ops.microsoft.normalization.branchwise_rms_norm",
    "pyruntime.ops.microsoft.normalization.engram_gate",
    "pyruntime.ops.microsoft.normalization.hyper_connection",
    "pyruntime.ops.microsoft.products.dynamic_quantize_lstm",
    "pyruntime.ops.microsoft.products.matmul_bnb4",
    "pyruntime.ops.microsoft.search",
    "pyruntime.ops.microsoft.states",
    "pyruntime.ops.microsoft.superseded",
    "pyruntime.ops.microsoft.tokenizer",
    "pyruntime.ops.microsoft.unfold_tensor",
    "pyruntime.ops.ml",
    "pyruntime.ops.movement.reverse_sequence",
    "pyruntime.ops.normalization.lrn",
    "pyruntime.ops.normalization.mean_variance_normalization",
    "pyruntime.ops.random",
    "pyruntime.ops.sequences",
    "pyruntime.ops.signal",
    "pyruntime.ops.text",
    "pyruntime.ops.training",
    "pyruntime.ops.vision.affine_grid",
    "pyruntime.ops.vision.grid_sample",
    "pyruntime.ops.vision.image_decoder",
    "pyruntime.ops.vision.max_roi_pool",
    "pyruntime.ops.vision.roi_align",
    "pyruntime.session.aot.plan_store",
    "pyruntime.session.api.gpu",
    "pyruntime.session.load.packed_caches",
    "pyruntime.session.tuning.tuning",
)

root = Path(pyruntime.__path__[0])
for file in sorted(root.rglob("*.py")):  # pkgutil.walk_packages would also import packages that are left out
    name = ".".join(("pyruntime", *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    if not f"{name}.".startswith(tuple(f"{left}." for left in LEFT_OUT)):
        importlib.import_module(name)
for name in ("facts", "sampling"):  # used by text generation in JavaScript
    importlib.import_module(f"pyruntime.generate.{name}")


def plan(model: bytes) -> None:
    """Plan the digits model for one image, on a recording device."""
    from pyruntime.device.null import NullDevice
    from pyruntime.kernels.wgsl import library
    from pyruntime.onnx.importer.model import import_model
    from pyruntime.onnx.reader import read_model
    from pyruntime.session.run.program import Program

    for name in library.sources():
        library.read(name)
    graph = import_model(read_model(model), {}, None).graph
    program = Program(graph, NullDevice())
    (image,), (output,) = graph.inputs, graph.outputs
    work = program.prepare({image.name: TensorType(DType.FLOAT, (1, 1, 16, 16))}, [output.name])
    try:
        work.send(None)  # this coroutine never suspends
    except StopIteration:
        program.release()


plan(Path("/build/digits.onnx").read_bytes())
candidates.forget()  # selected for sizes that other models do not have

HEAP_TYPE, IMMUTABLE_TYPE = 1 << 9, 1 << 8
for found in [*gc.get_objects(), *sys.modules.values()]:
    if isinstance(found, type) and found.__flags__ & (HEAP_TYPE | IMMUTABLE_TYPE) == HEAP_TYPE:
        if vars(found).get("__doc__"):
            found.__doc__ = None
    elif isinstance(found, types.ModuleType):
        found.__doc__ = None
del found

# Restore the archive that pages have, without the bytecode used here.
LIBRARY = Path(f"/lib/python{sys.version_info.major}{sys.version_info.minor}.zip")
Path("/build/library.zip").replace(LIBRARY)
importers = [known for known in sys.path_importer_cache.values() if isinstance(known, zipimport.zipimporter)]
for importer in importers:
    importer.invalidate_caches()
for importer in importers:
    importer._get_files()  # type: ignore[attr-defined]  # private: reads the archive's list now
gc.collect()
