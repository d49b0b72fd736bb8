"""Memory that is shared: by values of a plan, and by runs that overlap."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["OVERLAP_MUTATIONS"]

VERIFY = "tests/compiler/test_verify.py::"
FORMS = "tests/compiler/test_forms.py::test_forms__of_every_kind__destroy_nothing_that_is_still_read"
PLANS = "tests/fuzz/test_plans.py::test_plans__of_random_graphs__destroy_nothing_that_is_still_read"
OVERLAPS = "tests/session/run/test_overlaps.py::"
BROWSER_FORMS = "e2e/conformance/test_forms.py::test_forms__of_every_kind__equal_onnxruntime"

OVERLAP_MUTATIONS = (
    Mutation(
        "overlap: every operand on memory that is overwritten is listed",
        "pyruntime/compiler/lifetimes.py",
        "all((i, written) in step.dispatch.inplace and same_place(step.dispatch, i, written) for i in there)",
        "all(same_place(step.dispatch, i, written) for i in there)",
        (
            VERIFY + "test_plan__residual_is_the_operators_own_input__is_not_overwritten",
            FORMS,
            PLANS,
            BROWSER_FORMS + "[software]",
            BROWSER_FORMS + "[gpu]",
        ),
    ),
    Mutation(
        "overlap: scratch tensors of a node are told apart",
        "pyruntime/kernels/ir/dispatch.py",
        "    return Operand(Role.SCRATCH, next(_fresh), TensorType(dtype, shape))",
        "    return Operand(Role.SCRATCH, 0, TensorType(dtype, shape))",
        (
            "tests/kernels/test_dispatch.py::test_scratch__every_call__is_another_tensor",
            "tests/kernels/test_dispatch.py::test_lowering__inside_another__has_scratch_of_its_own",
            "tests/compiler/test_two_passes.py::test_fold__of_many_elements__overwrites_nothing_that_is_still_read[TopK-gpu]",
        ),
    ),
    Mutation(
        "overlap: values of a model that are named like scratch tensors are none",
        "pyruntime/compiler/segments.py",
        "        while name in self.graph.types:\n",
        "        while False:\n",
        ("tests/kernels/test_dispatch.py::test_plan__of_an_input_named_like_scratch__keeps_them_apart",),
    ),
    Mutation(
        "overlap: an epilogue lists only what it reads where it writes",
        "pyruntime/kernels/ir/elementwise_epilogue.py",
        " if a is Access.FULL and o.type.dtype.bits == epilogue.to.bits",
        "",
        (VERIFY + "test_plan__operands_that_an_epilogue_broadcasts__are_not_listed",),
    ),
    Mutation(
        "overlap: a kernel's own inputs are not its epilogue's",
        "pyruntime/kernels/ir/epilogue.py",
        "inplace=(*listed, *inplace))",
        "inplace=(*((i, end) for i in range(at)), *listed, *inplace))",
        (VERIFY + "test_plan__residual_is_the_operators_own_input__is_not_overwritten", FORMS),
    ),
    Mutation(
        "overlap: the verifier asks for the list",
        "pyruntime/compiler/verify.py",
        "elif (other, written) not in command.inplace:",
        "elif False:",
        (VERIFY + "test_build__operands_that_are_not_listed_may_be_overwritten__is_refused",),
    ),
    Mutation(
        "overlap: the verifier follows what memory holds",
        "pyruntime/compiler/verify.py",
        "            if held != root:\n",
        "            if False:\n",
        (VERIFY + "test_complaints__value_overwritten_before_its_last_use__is_named",),
    ),
    Mutation(
        "overlap: values that are alive at once lie apart",
        "pyruntime/compiler/lifetimes.py",
        "            self._last[root] = max(time, self._last.get(root, time))\n\n    def share_in_place",
        "            self._last.setdefault(root, time)\n\n    def share_in_place",
        (VERIFY + "test_plan__residual_is_the_operators_own_input__is_not_overwritten", FORMS, PLANS),
    ),
    Mutation(
        "overlap: a measured run has the arena to itself",
        "pyruntime/device/execution/arenas.py",
        "        while self._lock.locked():\n",
        "        while False:\n",
        (
            OVERLAPS + "test_overlapping_runs__while_one_is_measured__are_not_queued",
            "e2e/execution/test_overlaps.py::test_runs__of_one_session_some_of_them_measured__equal_the_serial_ones[small]",
        ),
    ),
    Mutation(
        "overlap: a measured run waits for those before it",
        "pyruntime/device/execution/arenas.py",
        "            while self._overlapping:\n",
        "            while False:\n",
        (OVERLAPS + "test_overlapping_runs__before_one_is_measured__are_waited_for",),
    ),
    Mutation(
        "overlap: a tensor that a run has is not written under it",
        "pyruntime/session/run/program.py",
        "alone = not given.in_use and not given.shared and ",
        "alone = ",
        (
            OVERLAPS + "test_tensor__output_of_a_run_while_another_reads_it__is_not_written_under_it",
            OVERLAPS + "test_tensor__output_of_two_runs_at_once__is_written_by_each_in_memory_of_its_own",
            "e2e/execution/test_overlaps.py::test_run__on_a_tensor_that_another_run_writes_meanwhile__reads_what_it_was",
        ),
    ),
    Mutation(
        "overlap: a run keeps the memory of its inputs",
        "pyruntime/session/run/program.py",
        "given = {n: loans.lend(v) for",
        "given = {n: v for",
        (
            OVERLAPS + "test_tensor__input_of_a_run_while_another_exchanges_it__keeps_its_memory_for_both_segments",
            OVERLAPS + "test_tensor__output_of_a_run_while_another_reads_it__is_not_written_under_it",
        ),
    ),
    Mutation(
        "overlap: another run on the same input gives the same bits",
        "e2e/conformance/runner.py",
        "    return await _again(session, feed, names, values)\n",
        '    return ""\n',
        ("e2e/conformance/test_twice.py::test_run__that_differs_from_the_one_before__is_a_failure",),
    ),
)
