"""What is taken away, and which tests have to notice."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTATIONS", "Mutation"]


@dataclass(frozen=True)
class Mutation:
    """A defence without which something that SECURITY.md promises does not hold.

    Attributes:
        defence: what is gone.
        path: the file it is in.
        old, new: its text there, which occurs once, and what is there instead.
        tests: pytest's names of those that have to fail, each of them.
    """

    defence: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def in_browser(self) -> bool:
        """True where a site has to be built for its tests."""
        return any(test.startswith("e2e/") for test in self.tests)


LIMITS = "tests/session/test_limits.py::"
REACHED = LIMITS + "test_limit__reached__names_itself_and_can_be_raised"
FAULTS = "tests/session/test_device_faults.py::"
INTERRUPTION = "tests/session/test_interruption.py::"
EXTERNAL = "tests/onnx/test_external.py::"
BROWSER = "e2e/test_reliability.py::"
AHEAD = "e2e/test_reading_ahead.py::"
PAGE = "e2e/test_reliability_page.py::"
LIVES = "e2e/test_python_lives.py::"

LIMIT_MUTATIONS = (
    Mutation(
        "limit `model_bytes`",
        "pyruntime/onnx/reader.py",
        "if source.size > limits.nbytes:",
        "if False:",
        (REACHED + "[model_bytes]",),
    ),
    Mutation(
        "limit `messages`", "pyruntime/onnx/wire.py", "if self._budget < 0:", "if False:", (REACHED + "[messages]",)
    ),
    Mutation(
        "limit `nesting`",
        "pyruntime/onnx/wire.py",
        "if depth > self._limits.depth:",
        "if False:",
        (REACHED + "[nesting]",),
    ),
    Mutation(
        "limit `nodes`",
        "pyruntime/onnx/builder.py",
        "if self._nodes > self._limits.nodes:",
        "if False:",
        (REACHED + "[nodes]",),
    ),
    Mutation(
        "limit `node_bytes`",
        "pyruntime/ops/interpreter.py",
        "    if nbytes > limit:",
        "    if False:",
        (REACHED + "[node_bytes]",),
    ),
    Mutation(
        "limit `loop_trips`",
        "pyruntime/ops/loop.py",
        "if trip >= context.limits.loop_trips:",
        "if False:",
        (REACHED + "[loop_trips]",),
    ),
    Mutation(
        "limit `gpu_bytes`",
        "pyruntime/session/limits.py",
        "if needed + held > self.gpu_bytes:",
        "if False:",
        (
            LIMITS + "test_limit__of_gpu_bytes__refuses_before_anything_is_allocated",
            BROWSER + "test_out_of_memory__predicted__refuses_with_numbers_and_others_go_on",
        ),
    ),
    Mutation(
        "limit `run_seconds`",
        "pyruntime/session/limits.py",
        "if time.monotonic() > end:",
        "if False:",
        (LIMITS + "test_limit__of_run_seconds__ends_a_run_of_a_loop",),
    ),
    Mutation(
        "limit `run_seconds` while the GPU works",
        "pyruntime/session/interruption.py",
        "if end <= now]",
        "if False]",
        (INTERRUPTION + "test_limit__of_run_seconds__ends_a_run_that_the_device_never_answers",),
    ),
    Mutation(
        "places on the C stack given back",
        "web/runtime.js",
        "  mendStack(pyodide._module);",
        "  void mendStack;",
        (LIVES + "test_event_loop__thousands_of_turns__take_nothing_of_the_stack",),
    ),
    Mutation(
        "places on the C stack given back while a call waits",
        "web/stack.js",
        "      over.add(place);\n",
        "",
        (LIVES + "test_event_loop__turns_while_a_call_waits__take_nothing_of_the_stack",),
    ),
    Mutation(
        "the end of Python told",
        "web/runtime.js",
        "  pyodide._api.on_fatal = ",
        "  void ",
        (LIVES + "test_python__ended__is_told_to_who_waits_and_the_next_session_has_another",),
    ),
    Mutation(
        "limit `cached_plans`",
        "pyruntime/session/stages.py",
        "        if not stage.users:\n            stages.pop(index)",
        "        if False:\n            stages.pop(index)",
        (
            LIMITS + "test_limit__of_cached_plans__keeps_that_many",
            BROWSER + "test_many_input_shapes__memory_stays_within_the_plans_kept",
        ),
    ),
)

FILE_MUTATIONS = (
    Mutation(
        "external data: `..`",
        "pyruntime/onnx/external.py",
        '        or ".." in parts\n',
        "",
        (EXTERNAL + "test_directory__way_out__is_refused",),
    ),
    Mutation(
        "external data: links that leave",
        "pyruntime/onnx/external.py",
        "if not any(Path(path).is_relative_to(root) for root in self._roots):",
        "if False:",
        (EXTERNAL + "test_directory__symbolic_link_out__is_refused",),
    ),
    Mutation(
        "external data: hard links",
        "pyruntime/onnx/external.py",
        "if os.fstat(descriptor).st_nlink > 1:",
        "if False:",
        (EXTERNAL + "test_directory__hard_link__is_refused",),
    ),
    Mutation(
        "external data: spans past the end",
        "pyruntime/onnx/external.py",
        "if offset > source.size or length > source.size - offset:",
        "if False:",
        (EXTERNAL + "test_files__span_that_does_not_fit__fails",),
    ),
)

DEVICE_MUTATIONS = (
    Mutation(
        "the second run after a loss",
        "pyruntime/session/recovery.py",
        "            cause = error\n",
        "            raise\n",
        (
            FAULTS + "test_loss__fifty_times_in_a_row__every_run_answers",
            BROWSER + "test_loss__device_destroyed_fifty_times__every_run_answers_right",
            BROWSER + "test_loss__while_runs_and_stages_are_in_progress__answers_equal_the_serial_ones",
            PAGE + "test_loss__of_a_replayed_session_fifty_times__every_run_answers_right",
        ),
    ),
    Mutation(
        "what is said where no adapter is left",
        "pyruntime/session/recovery.py",
        "            except EPFail as error:\n",
        "            except ZeroDivisionError as error:\n",
        (
            FAULTS + "test_loss__adapter_gone__says_so_and_the_cpu_answers_on_request",
            BROWSER + "test_loss__no_adapter_any_more__says_so_and_the_cpu_goes_on",
        ),
    ),
    Mutation(
        "the count of runs in a plan",
        "pyruntime/session/stages.py",
        "        if not stage.users:\n",
        "        if True:\n",
        (FAULTS + "test_plans_of_runs_in_progress__are_not_freed_for_other_shapes",),
    ),
    Mutation(
        "runs that a release waits for",
        "pyruntime/session/recovery.py",
        "if self._closed and not self._users:",
        "if self._closed:",
        (FAULTS + "test_release__while_runs_are_in_progress__answers_or_one_error_and_frees_everything",),
    ),
    Mutation(
        "the scopes around an allocation",
        "pyruntime/device/pyodide.py",
        "        if refused:\n            self.free(made)\n            raise OutOfMemory(",
        "        if False:\n            self.free(made)\n            raise OutOfMemory(",
        (BROWSER + "test_out_of_memory__of_the_device_itself__leaves_nothing_and_others_go_on",),
    ),
    Mutation(
        "errors outside of any scope",
        "pyruntime/device/pyodide.py",
        '            self.lost = f"given up after an error outside of any run: {event.error.message}"\n'
        "        self.device.destroy()\n",
        "            pass\n",
        (BROWSER + "test_error_outside_of_any_run__a_write_refused__is_no_answer_but_a_new_device",),
    ),
    Mutation(
        "the scopes around a replay",
        "web/player.js",
        "    await caught(scopes);\n    return results",
        "    return results",
        (PAGE + "test_fault__of_every_call_during_a_replay__is_an_exception_or_the_right_answer",),
    ),
    Mutation(
        "staging buffers of a run that failed",
        "web/player.js",
        "    for (const { staging, done } of pieces) if (!done) staging.destroy();\n",
        "",
        (PAGE + "test_fault__of_every_call_during_a_replay__is_an_exception_or_the_right_answer",),
    ),
    Mutation(
        "the comparison of what is fed with what was foreseen",
        "web/ahead/ahead.js",
        "name === token ? numberIn(feeds[name]) === fed.id && String",
        "name === token ? String",
        ("e2e/test_run_ahead.py::test_writing__ahead__gives_the_same_bits[another each sixth]",),
    ),
    Mutation(
        "the wait for what an error was read from, where that is a hint",
        "web/loading/file.js",
        "    if (!isVouchedFor) await complete;\n",
        "",
        (AHEAD + "test_create__parts_are_of_another_file__session_is_that_of_the_stream[graph-None-5]",),
    ),
    Mutation(
        "Python's attempt after a replay that failed",
        "web/host.js",
        "replayed.prepared.replay.live = false; // Python finds out why, and mends what can be mended",
        "throw new Error('the replay failed');",
        (
            PAGE + "test_loss__of_a_replayed_session_fifty_times__every_run_answers_right",
            PAGE + "test_loss__while_replays_are_in_progress__every_run_answers_right",
        ),
    ),
)

RUN_MUTATIONS = (
    Mutation(
        "the interrupt of a cancelled load or run",
        "pyruntime/session/interruption.py",
        "                inside.tell()\n",
        "                pass\n",
        (
            INTERRUPTION + "test_device__that_never_answers__is_not_waited_for",
            "e2e/test_cancellation.py::test_run__aborted_while_the_gpu_does_not_answer__holds_nothing",
        ),
    ),
    Mutation(
        "an aborted request is ended in the worker",
        "web/client.js",
        "      this.#request('cancel', { request: id }, [], {}).catch(() => {});\n",
        "",
        (
            "e2e/test_cancellation.py::test_create__aborted_while_it_downloads__ends_the_download",
            "e2e/test_cancellation.py::test_run__aborted_while_the_gpu_does_not_answer__holds_nothing",
        ),
    ),
    Mutation(
        "an aborted load that was answered is released",
        "web/client.js",
        "{ resolve: undo ?? (() => {}), reject: () => {} }",
        "{ resolve: () => {}, reject: () => {} }",
        ("e2e/test_cancellation.py::test_create__aborted_when_the_answer_is_on_its_way__is_released",),
    ),
    Mutation(
        "a session that was released runs no more",
        "web/session.js",
        "if (this.#released) throw new Error('the session is released');",
        "",
        (PAGE + "test_overlapping_runs__of_eight_sessions_while_others_load_and_go__answer_or_say_released",),
    ),
    Mutation(
        "a session forgets its runs",
        "pyruntime/session/program.py",
        "        return {name: await self._output(name, stage, run, feeds) for name in outputs}\n",
        "        self.runs = [*getattr(self, 'runs', ()), run]\n"
        "        return {name: await self._output(name, stage, run, feeds) for name in outputs}\n",
        (BROWSER + "test_many_runs__memory_of_gpu_and_python_stays_flat",),
    ),
    Mutation(
        "the page forgets requests that were answered",
        "web/client.js",
        "    this.#pending.delete(message.id);\n",
        "    Object.assign(pending, { message });\n",
        (PAGE + "test_many_runs__heaps_of_page_and_worker_and_the_gpu__stay_flat",),
    ),
    Mutation(
        "exceptions become answers of the bridge",
        "pyruntime/bridge.py",
        '                    "name": type(error).__name__,\n',
        '                    "name": "Error",\n',
        ("e2e/test_javascript_api.py::test_run__wrong_feeds__fail_with_name_expected_and_got",),
    ),
)

VERIFY = "tests/plan/test_verify.py::"
FORMS = "tests/plan/test_forms.py::test_forms__of_every_kind__destroy_nothing_that_is_still_read"
PLANS = "tests/fuzz/test_plans.py::test_plans__of_random_graphs__destroy_nothing_that_is_still_read"
OVERLAPS = "tests/session/test_overlaps.py::"
BROWSER_FORMS = "e2e/conformance/test_forms.py::test_forms__of_every_kind__equal_onnxruntime"

OVERLAP_MUTATIONS = (
    Mutation(
        "overlap: every operand on memory that is overwritten is listed",
        "pyruntime/plan/lifetimes.py",
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
        "pyruntime/kernels/dispatch.py",
        "    return Operand(Role.SCRATCH, next(_fresh), TensorType(dtype, shape))",
        "    return Operand(Role.SCRATCH, 0, TensorType(dtype, shape))",
        (
            "tests/kernels/test_dispatch.py::test_scratch__every_call__is_another_tensor",
            "tests/kernels/test_dispatch.py::test_lowering__inside_another__has_scratch_of_its_own",
            "tests/plan/test_two_passes.py::test_fold__of_many_elements__overwrites_nothing_that_is_still_read[Hardmax-gpu]",
        ),
    ),
    Mutation(
        "overlap: values of a model that are named like scratch tensors are none",
        "pyruntime/plan/build.py",
        "        while name in self.graph.types:\n",
        "        while False:\n",
        ("tests/kernels/test_dispatch.py::test_plan__of_an_input_named_like_scratch__keeps_them_apart",),
    ),
    Mutation(
        "overlap: an epilogue lists only what it reads where it writes",
        "pyruntime/kernels/tail.py",
        " if a is Access.FULL and o.type.dtype.bits == tail.to.bits",
        "",
        (VERIFY + "test_plan__operands_that_an_epilogue_broadcasts__are_not_listed",),
    ),
    Mutation(
        "overlap: a kernel's own inputs are not its epilogue's",
        "pyruntime/kernels/epilogue.py",
        "inplace=(*listed, *inplace))",
        "inplace=(*((i, end) for i in range(at)), *listed, *inplace))",
        (VERIFY + "test_plan__residual_is_the_operators_own_input__is_not_overwritten", FORMS),
    ),
    Mutation(
        "overlap: the verifier asks for the list",
        "pyruntime/plan/verify.py",
        "elif (other, written) not in command.inplace:",
        "elif False:",
        (VERIFY + "test_build__operands_that_are_not_listed_may_be_overwritten__is_refused",),
    ),
    Mutation(
        "overlap: the verifier follows what memory holds",
        "pyruntime/plan/verify.py",
        "            if held != root:\n",
        "            if False:\n",
        (VERIFY + "test_complaints__value_overwritten_before_its_last_use__is_named",),
    ),
    Mutation(
        "overlap: values that are alive at once lie apart",
        "pyruntime/plan/lifetimes.py",
        "            self._last[root] = max(time, self._last.get(root, time))\n\n    def share_in_place",
        "            self._last.setdefault(root, time)\n\n    def share_in_place",
        (VERIFY + "test_plan__residual_is_the_operators_own_input__is_not_overwritten", FORMS, PLANS),
    ),
    Mutation(
        "overlap: a measured run has the arena to itself",
        "pyruntime/device/arenas.py",
        "        while self._lock.locked():\n",
        "        while False:\n",
        (
            OVERLAPS + "test_overlapping_runs__while_one_is_measured__are_not_queued",
            "e2e/test_overlaps.py::test_runs__of_one_session_some_of_them_measured__equal_the_serial_ones[small]",
        ),
    ),
    Mutation(
        "overlap: a measured run waits for those before it",
        "pyruntime/device/arenas.py",
        "            while self._overlapping:\n",
        "            while False:\n",
        (OVERLAPS + "test_overlapping_runs__before_one_is_measured__are_waited_for",),
    ),
    Mutation(
        "overlap: a tensor that a run has is not written under it",
        "pyruntime/session/program.py",
        "alone = not given.in_use and ",
        "alone = ",
        (
            OVERLAPS + "test_tensor__output_of_a_run_while_another_reads_it__is_not_written_under_it",
            OVERLAPS + "test_tensor__output_of_two_runs_at_once__is_written_by_each_in_memory_of_its_own",
            "e2e/test_overlaps.py::test_run__on_a_tensor_that_another_run_writes_meanwhile__reads_what_it_was",
        ),
    ),
    Mutation(
        "overlap: a run keeps the memory of its inputs",
        "pyruntime/session/program.py",
        "given = {n: lent.enter_context(v.lent()) for",
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

MUTATIONS = LIMIT_MUTATIONS + FILE_MUTATIONS + DEVICE_MUTATIONS + RUN_MUTATIONS + OVERLAP_MUTATIONS
