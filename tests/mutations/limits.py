"""Limits, and what models may not reach: files outside of their folder, the C stack."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["FILE_MUTATIONS", "LIMIT_MUTATIONS"]

LIMITS = "tests/session/run/test_limits.py::"
REACHED = LIMITS + "test_limit__reached__names_itself_and_can_be_raised"
INTERRUPTION = "tests/session/api/test_interruption.py::"
EXTERNAL = "tests/onnx/test_external.py::"
MEMORY = "e2e/reliability/test_reliability_memory.py::"
LIVES = "e2e/reliability/test_python_lives.py::"

LIMIT_MUTATIONS = (
    Mutation(
        "limit `model_bytes`",
        "pyruntime/onnx/reader.py",
        "if source.size > limits.nbytes:",
        "if False:",
        (REACHED + "[model_bytes]",),
    ),
    Mutation(
        "limit `messages`",
        "pyruntime/onnx/formats/protobuf.py",
        "if self._budget < 0:",
        "if False:",
        (REACHED + "[messages]",),
    ),
    Mutation(
        "limit `nesting`",
        "pyruntime/onnx/formats/protobuf.py",
        "if depth > self._limits.depth:",
        "if False:",
        (REACHED + "[nesting]",),
    ),
    Mutation(
        "limit `nodes`",
        "pyruntime/onnx/importer/builder.py",
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
        "pyruntime/ops/control/body.py",
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
            MEMORY + "test_out_of_memory__predicted__refuses_with_numbers_and_others_go_on",
        ),
    ),
    Mutation(
        "limit `gpu_bytes` of weights",
        "pyruntime/session/limits.py",
        "if nbytes > self.gpu_bytes:",
        "if False:",
        (LIMITS + "test_create__weights_above_the_memory_of_the_device__refused_before_sizes_are_known",),
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
        "web/worker/runtime.js",
        "  fixStack(pyodide._module);",
        "  void fixStack;",
        (LIVES + "test_event_loop__thousands_of_turns__take_nothing_of_the_stack",),
    ),
    Mutation(
        "places on the C stack given back while a call waits",
        "web/worker/stack.js",
        "      over.add(place);\n",
        "",
        (LIVES + "test_event_loop__turns_while_a_call_waits__take_nothing_of_the_stack",),
    ),
    Mutation(
        "the end of Python told",
        "web/worker/runtime.js",
        "  pyodide._api.on_fatal = ",
        "  pyodide._api.unheard = ",
        (LIVES + "test_python__ended__is_told_to_who_waits_and_the_next_session_has_another",),
    ),
    Mutation(
        "limit `cached_plans`",
        "pyruntime/session/run/plan_cache.py",
        "        if not stage.users:\n            stages.pop(index)",
        "        if False:\n            stages.pop(index)",
        (
            LIMITS + "test_limit__of_cached_plans__keeps_that_many",
            MEMORY + "test_many_input_shapes__memory_stays_within_the_plans_kept",
        ),
    ),
)

FILE_MUTATIONS = (
    Mutation(
        "external data: `..`",
        "pyruntime/onnx/formats/external.py",
        '        or ".." in parts\n',
        "",
        (EXTERNAL + "test_directory__way_out__is_refused",),
    ),
    Mutation(
        "external data: links that leave",
        "pyruntime/onnx/formats/external.py",
        "if not any(Path(path).is_relative_to(root) for root in self._roots):",
        "if False:",
        (EXTERNAL + "test_directory__symbolic_link_out__is_refused",),
    ),
    Mutation(
        "external data: hard links",
        "pyruntime/onnx/formats/external.py",
        "if os.fstat(descriptor).st_nlink > 1:",
        "if False:",
        (EXTERNAL + "test_directory__hard_link__is_refused",),
    ),
    Mutation(
        "external data: spans past the end",
        "pyruntime/onnx/formats/external.py",
        "if offset > source.size or length > source.size - offset:",
        "if False:",
        (EXTERNAL + "test_files__span_that_does_not_fit__fails",),
    ),
)
