"""Runs and loads: lost devices, failures, cancellation, what is kept of them."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["DEVICE_MUTATIONS", "RUN_MUTATIONS"]

FAULTS = "tests/session/run/test_device_faults.py::"
INTERRUPTION = "tests/session/api/test_interruption.py::"
BROWSER = "e2e/reliability/test_reliability.py::"
MEMORY = "e2e/reliability/test_reliability_memory.py::"
AHEAD = "e2e/loading/test_prefetch.py::"
EXTERNAL = "e2e/loading/test_external_ahead.py::"
PAGE = "e2e/reliability/test_reliability_page.py::"

DEVICE_MUTATIONS = (
    Mutation(
        "the second run after a loss",
        "pyruntime/session/run/recovery.py",
        "            cause = str(error)  # the exception itself would hold this frame, and with it the program\n",
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
        "pyruntime/session/run/recovery.py",
        "            except EPFail as error:\n",
        "            except ZeroDivisionError as error:\n",
        (
            FAULTS + "test_loss__adapter_gone__says_so_and_the_cpu_answers_on_request",
            BROWSER + "test_loss__no_adapter_any_more__says_so_and_the_cpu_goes_on",
        ),
    ),
    Mutation(
        "the count of runs in a plan",
        "pyruntime/session/run/plan_cache.py",
        "        if not stage.users:\n",
        "        if True:\n",
        (FAULTS + "test_plans_of_runs_in_progress__are_not_freed_for_other_shapes",),
    ),
    Mutation(
        "runs that a release waits for",
        "pyruntime/session/run/recovery.py",
        "if self._closed and not self._users:",
        "if self._closed:",
        (FAULTS + "test_release__while_runs_are_in_progress__answers_or_one_error_and_frees_everything",),
    ),
    Mutation(
        "the scopes around an allocation",
        "pyruntime/device/webgpu/pyodide.py",
        "        if refused:\n            self.free(made)\n            raise OutOfMemory(",
        "        if False:\n            self.free(made)\n            raise OutOfMemory(",
        (MEMORY + "test_out_of_memory__of_the_device_itself__leaves_nothing_and_others_go_on",),
    ),
    Mutation(
        "errors outside of any scope",
        "pyruntime/device/webgpu/pyodide.py",
        '            self.lost = f"given up after an error outside of any run: {event.error.message}"\n'
        "        self.gpu_device.destroy()\n",
        "            pass\n",
        (BROWSER + "test_error_outside_of_any_run__a_write_refused__is_no_answer_but_a_new_device",),
    ),
    Mutation(
        "the scopes around a replay",
        "web/gpu/player.js",
        "    await caught(scopes);\n    readback.end();",
        "    readback.end();",
        (PAGE + "test_fault__of_every_call_during_a_replay__is_an_exception_or_the_right_answer",),
    ),
    Mutation(
        "staging buffers of a run that failed",
        "web/gpu/readback.js",
        "    for (const { staging, done } of this.#begun) if (!done) poolOf(this.#device).discard(staging);\n",
        "",
        (PAGE + "test_fault__of_every_call_during_a_replay__is_an_exception_or_the_right_answer",),
    ),
    Mutation(
        "the comparison of what is fed with what was predicted",
        "web/speculation/speculation.js",
        "name === token ? numberIn(feeds[name]) === fed.id && String",
        "name === token ? String",
        ("e2e/execution/test_speculation.py::test_writing__ahead__gives_the_same_bits[another each sixth]",),
    ),
    Mutation(
        "the wait for what an error was read from, where that is a hint",
        "web/loading/file.js",
        "    if (this.#isGiven && !this.#isVouchedFor && (this.#isAhead || !this.isExact)) await this.complete();\n",
        "",
        (AHEAD + "test_create__parts_are_of_another_file__session_is_that_of_the_stream[graph-None-8]",),
    ),
    Mutation(
        "the comparison of the stream with parts of external data that were read ahead of it",
        "web/loading/prefetch.js",
        "this.agrees = false;",
        "this.agrees = true;",
        (EXTERNAL + "test_create__parts_are_of_another_file__session_is_that_of_the_stream[here-other-None]",),
    ),
    Mutation(
        "the external data of a model, where its session is made again",
        "web/loading/loading.js",
        "asked.get(href) ?? this.#held(href, false)",
        "this.#held(href, false)",
        (EXTERNAL + "test_create__parts_are_of_another_file__session_is_that_of_the_stream[here-other-None]",),
    ),
    Mutation(
        "Python's attempt after a replay that failed",
        "web/worker/runs.js",
        "prepared.replay.live = false; // Python finds the cause and recovers where it can",
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
            "e2e/api/test_cancellation.py::test_run__aborted_while_the_gpu_does_not_answer__holds_nothing",
        ),
    ),
    Mutation(
        "an aborted request is ended in the worker",
        "web/api/client.js",
        "      this.#request('cancel', { request: id }, [], {}).catch(() => {});\n",
        "",
        ("e2e/api/test_cancellation.py::test_create__aborted_while_it_downloads__ends_the_download",),
    ),
    Mutation(
        "an aborted load that was answered is released",
        "web/api/aborting.js",
        "work.then(undo, () => {});",
        "work.catch(() => {});",
        ("e2e/api/test_cancellation.py::test_create__aborted_when_the_answer_is_on_its_way__is_released",),
    ),
    Mutation(
        "a session that was released runs no more",
        "web/api/session.js",
        "if (this.#released) throw new Error('the session is released');",
        "",
        (PAGE + "test_overlapping_runs__of_eight_sessions_while_others_load_and_go__answer_or_say_released",),
    ),
    Mutation(
        "a session forgets its runs",
        "pyruntime/session/run/program.py",
        "            new = run.free & run.tensors.keys() - feeds.keys()\n",
        "            self.runs = [*getattr(self, 'runs', ()), run]\n"
        "            new = run.free & run.tensors.keys() - feeds.keys()\n",
        (MEMORY + "test_many_runs__memory_of_gpu_and_python_stays_flat",),
    ),
    Mutation(
        "the page forgets requests that were answered",
        "web/api/client.js",
        "    this.#pending.delete(message.id);\n",
        "    Object.assign(pending, { message });\n",
        (PAGE + "test_many_runs__heaps_of_page_and_worker_and_the_gpu__stay_flat",),
    ),
    Mutation(
        "exceptions become answers of the bridge",
        "pyruntime/bridge/requests.py",
        '"name": type(error).__name__',
        '"name": "Error"',
        ("e2e/api/test_javascript_api.py::test_run__wrong_feeds__fail_with_name_expected_and_got",),
    ),
)
