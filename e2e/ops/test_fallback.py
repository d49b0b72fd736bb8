"""The fallback entry points of kernels (`kernels.ir.fallback`), by the tests of the optimized ones in other files."""

from __future__ import annotations

import copy

import pytest

from e2e.harness.gpu import Gpu
from e2e.ops.attention.test_attention import (
    test_attention__every_candidate__as_the_formula,
    test_attention__half__as_host,
    test_attention__keys_in_reach__as_the_formula,
    test_attention__tiles_at_odd_sizes__as_the_formula,
)
from e2e.ops.convolution.test_convolution import (
    test_conv__halves__as_host,
    test_conv__more_tiles_than_workgroups_in_x__folded,
    test_conv__random__as_onnxruntime,
    test_conv__shapes_of_networks__as_host,
    test_conv_integer__random__as_onnxruntime,
    test_conv_transpose__random__as_onnxruntime,
    test_convolution__tiles_of_64__as_host,
)
from e2e.ops.convolution.test_resampling import (
    test_resize__many_positions_and_axes__axis_by_axis,
    test_resize__older_opsets__as_host,
    test_resize__random__as_onnxruntime,
    test_sums__narrow_types__as_host,
)
from e2e.ops.products.test_integer_products import (
    device,
    test_conv_integer__random_cases__as_onnxruntime,
    test_matmul_integer__every_configuration__is_exact,
    test_matmul_integer__extremes__do_not_overflow,
    test_matmul_integer__random_cases__as_onnxruntime,
    test_matmul_integer__rows_with_zero_points__as_numpy,
)
from e2e.ops.products.test_linear_algebra import (
    test_matmul__types__as_host,
    test_tiled__every_layout__as_numpy,
    test_tiled__four_slices__as_numpy,
    test_tiled__large_configuration__as_numpy,
    test_tiled__medium_slices__as_numpy,
)
from e2e.ops.products.test_quantized_models import test_residual_net__statically_quantised__as_onnxruntime
from e2e.ops.test_epilogue import (
    test_epilogue__convolution_as_a_product__equals_the_chain,
    test_epilogue__gemm_of_any_shape__equals_the_chain,
    test_epilogue__matmul_whose_k_is_split__equals_the_chain,
    test_norm__after_a_product__equals_the_chain,
    test_norm__after_a_product__writes_its_rows_where_they_go,
)
from e2e.ops.test_normalization import (
    test_normalization__every_type_and_rank__as_host,
    test_normalization__large_mean__variance_without_cancellation,
)
from e2e.ops.test_reductions import (
    test_arg__in_two_passes__as_host,
    test_arg__nan_and_infinity__as_host,
    test_arg__ties__as_host,
    test_reduce__bool__as_host,
    test_reduce__float__as_host,
    test_reduce__int64_beyond_32_bits__exact,
    test_reduce__integer__as_host,
    test_reduce__long__as_host,
    test_reduce__long_integers__as_host,
    test_reduce__nan_and_infinity__as_host,
    test_reduce__no_elements__as_host,
    test_reduction__every_candidate__as_the_sum,
)
from e2e.ops.test_skip_norm import (
    test_skip_norm__rows_in_another_order__are_read_and_written_so,
    test_skip_norm__terms_and_outputs__follow_the_formula,
)

__all__ = [
    "device",
    "test_arg__in_two_passes__as_host",
    "test_arg__nan_and_infinity__as_host",
    "test_arg__ties__as_host",
    "test_attention__every_candidate__as_the_formula",
    "test_attention__half__as_host",
    "test_attention__keys_in_reach__as_the_formula",
    "test_attention__tiles_at_odd_sizes__as_the_formula",
    "test_conv__halves__as_host",
    "test_conv__more_tiles_than_workgroups_in_x__folded",
    "test_conv__random__as_onnxruntime",
    "test_conv__shapes_of_networks__as_host",
    "test_conv_integer__random__as_onnxruntime",
    "test_conv_integer__random_cases__as_onnxruntime",
    "test_conv_transpose__random__as_onnxruntime",
    "test_convolution__tiles_of_64__as_host",
    "test_epilogue__convolution_as_a_product__equals_the_chain",
    "test_epilogue__gemm_of_any_shape__equals_the_chain",
    "test_epilogue__matmul_whose_k_is_split__equals_the_chain",
    "test_matmul__types__as_host",
    "test_matmul_integer__every_configuration__is_exact",
    "test_matmul_integer__extremes__do_not_overflow",
    "test_matmul_integer__random_cases__as_onnxruntime",
    "test_matmul_integer__rows_with_zero_points__as_numpy",
    "test_norm__after_a_product__equals_the_chain",
    "test_norm__after_a_product__writes_its_rows_where_they_go",
    "test_normalization__every_type_and_rank__as_host",
    "test_normalization__large_mean__variance_without_cancellation",
    "test_reduce__bool__as_host",
    "test_reduce__float__as_host",
    "test_reduce__int64_beyond_32_bits__exact",
    "test_reduce__integer__as_host",
    "test_reduce__long__as_host",
    "test_reduce__long_integers__as_host",
    "test_reduce__nan_and_infinity__as_host",
    "test_reduce__no_elements__as_host",
    "test_reduction__every_candidate__as_the_sum",
    "test_residual_net__statically_quantised__as_onnxruntime",
    "test_resize__many_positions_and_axes__axis_by_axis",
    "test_resize__older_opsets__as_host",
    "test_resize__random__as_onnxruntime",
    "test_skip_norm__rows_in_another_order__are_read_and_written_so",
    "test_skip_norm__terms_and_outputs__follow_the_formula",
    "test_sums__narrow_types__as_host",
    "test_tiled__every_layout__as_numpy",
    "test_tiled__four_slices__as_numpy",
    "test_tiled__large_configuration__as_numpy",
    "test_tiled__medium_slices__as_numpy",
]


@pytest.fixture
def gpu(gpu: Gpu) -> Gpu:
    """The page of all operator tests, running fallback kernels."""
    other = copy.copy(gpu)
    other.runs_fallback = True
    return other
