"""What is freed: by releases, after failures, aborts and the loss of a device."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["RELEASE_MUTATIONS"]

RELEASED = "tests/session/load/test_released.py::"
AT_ONCE = RELEASED + "test_session__released_or_deleted__frees_the_model_at_once"
EACH_CALL = RELEASED + "test_session__each_device_call_fails__frees_the_model_at_once"
FAULTS = "tests/session/run/test_device_faults.py::"
LOSS = "tests/session/run/test_device_loss.py::"
LOST = "e2e/reliability/test_lost_tensors.py::"
ABORTED = "e2e/api/test_aborted_runs.py::"
MISSING = "e2e/loading/test_missing_files.py::"

RELEASE_MUTATIONS = (
    Mutation(
        "a released session lets its model go",
        "pyruntime/session/load/creation.py",
        "        self._model = replace(self._model, graph=kept)\n",
        "",
        (AT_ONCE + "[released and kept-device-branches-run]",),
    ),
    Mutation(
        "a released session lets the files of its weights go",
        "pyruntime/session/load/creation.py",
        "        self._leave_gpu()\n        self._files = {}\n",
        "        self._leave_gpu()\n",
        (RELEASED + "test_session__released__frees_the_files_of_its_weights",),
    ),
    Mutation(
        "a session that is deleted is released",
        "pyruntime/session/load/creation.py",
        "weakref.finalize(self, self._live.release)",
        "weakref.finalize(self._live, self._live.release)",
        (AT_ONCE + "[deleted-device-dynamic sizes-run]",),
    ),
    Mutation(
        "a session holds no program that it has left",
        "pyruntime/session/load/creation.py",
        "            self._live = None\n            self._free_live()\n",
        "            self._free_live()\n",
        (AT_ONCE + "[released and kept-device-branches-run]",),
    ),
    Mutation(
        "weights of a stage that cannot be made",
        "pyruntime/session/run/planning.py",
        "            cache.weights.drop(keys)\n            cache.weights.sweep()\n            raise\n",
        "            raise\n",
        (RELEASED + "test_stage__cannot_be_made__leaves_no_weights",),
    ),
    Mutation(
        "computed weights of a stage that is released",
        "pyruntime/session/run/planning.py",
        "        stage.on_release.append(partial(cache.weights.drop, keys))\n",
        "",
        (RELEASED + "test_stages__all_forgotten__leave_no_weights",),
    ),
    Mutation(
        "a lost device is closed",
        "pyruntime/session/run/recovery.py",
        "            lost.device.close()\n",
        "",
        (FAULTS + "test_loss__at_each_device_call__is_repaired_once_and_frees_everything",),
    ),
    Mutation(
        "the program of a lost device is released",
        "pyruntime/session/run/recovery.py",
        "            lost.release()\n",
        "",
        (LOSS + "test_loss__of_a_plan__tells_what_repeats_it_without_python",),
    ),
    Mutation(
        "a device is replaced once",
        "pyruntime/session/run/recovery.py",
        "            if self.current is not lost:\n                return\n",
        "",
        (FAULTS + "test_loss__of_overlapping_runs_and_two_sessions__opens_one_device",),
    ),
    Mutation(
        "runs that wait for a device share its failure",
        "pyruntime/session/attempts.py",
        "            if self._failures != before and self._error is not None:",
        "            if False:",
        (
            LOSS + "test_loss__no_adapter_any_more__waiting_runs_fail_with_one_attempt",
            LOSS + "test_attempts__those_who_wait_while_one_fails__fail_with_it_and_later_ones_try_again",
        ),
    ),
    Mutation(
        "an error of the model on a device that is there is not tried again",
        "pyruntime/session/run/recovery.py",
        "            # What fails on a device that is gone says nothing about the model, whatever the exception is.\n"
        "            if not _is_lost(program.device):\n                raise\n",
        "",
        (FAULTS + "test_error_of_the_model__on_a_device_that_is_there__is_not_tried_again",),
    ),
    Mutation(
        "what a second loss in one run says",
        "pyruntime/session/run/recovery.py",
        '                f"the GPU device was lost, and the new one too while the model ran again: {error}; "\n',
        '                f"{error}; "\n',
        (FAULTS + "test_loss__twice_in_one_run__is_an_error_that_says_so",),
    ),
    Mutation(
        "a run whose outputs were lost is repeated",
        "pyruntime/session/run/program.py",
        "        if isinstance(value, DeviceTensor) and value.is_lost:",
        "        if False:",
        (LOSS + "test_loss__when_a_run_that_leaves_its_output_has_ended__repeats_it_on_the_new_device",),
    ),
    Mutation(
        "a run with other caches than the last one returned does not follow it",
        "pyruntime/session/run/following.py",
        "            and all(feeds.get(name) is cache() for name, cache in caches.items())\n",
        "",
        (
            "tests/session/run/test_following.py::test_walk__continued_branched_fed_from_the_host_and_shared__as_onnxruntime",
        ),
    ),
    Mutation(
        "a cache that another one continues is not written over",
        "pyruntime/device/tensor.py",
        "            memory.count == 1 or self.type.shape[axis] == max([t.type.shape[axis] for t in memory.tensors])\n",
        "            True\n",
        (
            "tests/session/run/test_following.py::test_walk__continued_branched_fed_from_the_host_and_shared__as_onnxruntime",
        ),
    ),
    Mutation(
        "a step is not computed ahead where tokens before it are missing",
        "pyruntime/generate/decoding.py",
        "self.model.on_gpu and not self._missing and self.remaining",
        "self.model.on_gpu and self.remaining",
        ("tests/generate/test_ahead.py::test_next__on_a_gpu__gives_the_ids_of_numpy",),
    ),
    Mutation(
        "inputs that were lost are named",
        "pyruntime/session/run/program.py",
        "                if tensor.is_lost:",
        "                if False:",
        (LOSS + "test_loss__of_an_input_on_the_gpu__names_it_and_says_what_to_do",),
    ),
    Mutation(
        "outputs that were lost are not written",
        "pyruntime/session/run/program.py",
        "        if given.in_use or given.shared or given.is_lost:",
        "        if given.in_use or given.shared:",
        (LOSS + "test_loss__of_a_host_output_bound_to_the_gpu__gets_new_memory",),
    ),
    Mutation(
        "frames of parallel work that failed are emptied",
        "pyruntime/device/execution/concurrency.py",
        "        forget_frames(error)\n        failures[number] = error\n",
        "        failures[number] = error\n",
        (LOST + "test_released_sessions__pythons_collector_rests__leave_no_model",),
    ),
    Mutation(
        "failures of parallel work stay out of its tasks",
        "pyruntime/device/execution/concurrency.py",
        "        failures[number] = error\n",
        "        failures[number] = error\n        raise\n",
        (LOST + "test_loss__no_adapter_any_more__twenty_runs_fail_with_the_questions_of_one",),
    ),
    Mutation(
        "an aborted wait tells what it waits for",
        "web/api/aborting.js",
        "      abort();\n",
        "",
        ("e2e/api/test_cancellation.py::test_create__aborted_while_it_downloads__ends_the_download",),
    ),
    Mutation(
        "outputs on the GPU of an aborted run",
        "web/api/session.js",
        "      for (const [name, value] of Object.entries(late)) if (!targets[name]) giveBack(value, this.#client);\n",
        "",
        (ABORTED + "test_run__aborted_while_its_answer_is_on_the_way__leaves_no_tensor",),
    ),
    Mutation(
        "outputs on the GPU of an aborted run of a compiled plan",
        "web/plans/standalone.js",
        "unlessAborted(work, listening.signal, listening.undo)",
        "unlessAborted(work, listening.signal)",
        (ABORTED + "test_run__of_a_plan_aborted_before_its_outputs_are_there__leaves_none_on_the_gpu",),
    ),
    Mutation(
        "the comparison of files with the build's list",
        "web/api/diagnosis.js",
        "  if (files.every(({ fault }) => !fault) && !Object.keys(moved).length) await compare(files, siteUrl);\n",
        "",
        (MISSING + "test_first_visit__each_of_its_files_at_fault__works_or_names_the_file",),
    ),
)
