"""GreedySearch, Sampling, BeamSearch, WhisperBeamSearch against onnxruntime's CPU: tokens exactly, scores to 1e-4."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import pyruntime
from pyruntime import errors
from pyruntime.device.null import NullDevice
from pyruntime.ir import Array
from pyruntime.ops.interpreter import Limits, RunContext
from tests.contrib.generators import EOS, PAD, START, encoder_decoder, gpt, model_of, whisper
from tests.contrib.settings import BEAM, GREEDY, SETTINGS, drawn, i32
from tests.models import run_model
from tests.oracle import OPTIONS
from tests.session.doubles import on_device

EACH = 8


def theirs(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
    made: list[Any] = session.run(None, feeds)
    return made


def compare(mine: list[Array], expected: list[Array], exact: bool) -> None:
    """Compare sequences and scores; exact: whole sequences, else up to the end of onnxruntime's longest one."""
    ids, wanted = mine[0], expected[0]
    assert (ids.dtype, ids.shape) == (wanted.dtype, wanted.shape)
    made = ids.shape[-1] if exact else int(np.flatnonzero((ids != PAD).any(axis=0))[-1]) + 1
    np.testing.assert_array_equal(ids[..., :made], wanted[..., :made])
    for scores, other in zip(mine[1:], expected[1:], strict=True):
        steps = len(scores) if scores.ndim == 2 else int(scores.any(axis=(1, 2, 3)).sum())
        assert scores.shape == other.shape and steps
        np.testing.assert_allclose(scores[:steps], other[:steps], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(EACH))
@pytest.mark.parametrize("kind", SETTINGS)
def test_generation__drawn_settings__as_onnxruntime(kind: str, seed: int) -> None:
    model, feeds = drawn(kind, seed)
    compare(run_model(model, feeds), theirs(model, feeds), exact="beams" in kind)


def beams(**more: Array) -> dict[str, Array]:
    """Feeds of a beam search."""
    return {
        "input_ids": i32([[PAD, 5, 6], [4, 7, 8]]),
        "max_length": i32([9]),
        "min_length": i32([0]),
        "num_beams": i32([3]),
        "num_return_sequences": i32([2]),
        "length_penalty": np.ones(1, np.float32),
        "repetition_penalty": np.ones(1, np.float32),
        **more,
    }


def search(feeds: dict[str, Array], outputs: tuple[str, ...] = ("sequences",), **attributes: Any) -> onnx.ModelProto:
    """A BeamSearch of a decoder alone."""
    given = {"eos_token_id": EOS, "pad_token_id": PAD, "decoder": gpt(np.random.default_rng(7)), **attributes}
    return model_of("BeamSearch", feeds, BEAM, outputs, **given)


def test_beam_search__weights_of_the_model__are_seen_by_subgraphs() -> None:
    """As converters write it: what two subgraphs share stands in the model's graph."""
    feeds = beams()
    model = search(feeds, init_decoder=gpt(np.random.default_rng(7)))
    graphs = [a.g for a in model.graph.node[0].attribute if a.type == onnx.AttributeProto.GRAPH]
    for index, weight in enumerate(list(graphs[0].initializer)):
        shared = onnx.TensorProto()
        shared.CopyFrom(weight)
        shared.name = f"shared_{index}"
        model.graph.initializer.append(shared)
        for graph in graphs:
            graph.initializer.remove(next(w for w in graph.initializer if w.name == weight.name))
            info = helper.make_tensor_value_info(shared.name, weight.data_type, list(weight.dims))
            graph.value_info.append(info)
            for node in graph.node:
                for place, name in enumerate(node.input):
                    if name == weight.name:
                        node.input[place] = shared.name
    (ids,) = run_model(model, feeds)
    np.testing.assert_array_equal(ids, theirs(model, feeds)[0])
    np.testing.assert_array_equal(ids, run_model(search(feeds), feeds)[0])


def test_greedy_search__all_have_ended__the_rest_is_padding() -> None:
    feeds = {"input_ids": i32([[5, 6]]), "max_length": i32([12])}
    decoder = gpt(np.random.default_rng(0), spread=0.0, lift=4.0)
    model = model_of("GreedySearch", feeds, GREEDY, ["sequences"], decoder=decoder, eos_token_id=EOS, pad_token_id=PAD)
    assert run_model(model, feeds)[0].tolist() == [[5, 6, *[PAD] * 10]]


def test_beam_search__long_text__ends_at_the_limit_and_can_be_stopped() -> None:
    feeds = beams(max_length=i32([30]), min_length=i32([30]))
    with pytest.raises(errors.RuntimeException, match=r"BeamSearch.*at most 5 trips \(limit `loop_trips`\)"):
        run_model(search(feeds), feeds, RunContext(Limits(loop_trips=5)))
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 200:
            raise errors.Fail("stopped")

    with pytest.raises(errors.Fail, match="stopped"):
        run_model(search(feeds), feeds, RunContext(check=check))
    assert calls == 200


def test_beam_search__among_nodes_on_the_gpu__is_a_step_of_the_host() -> None:
    feeds = beams()
    model = search(feeds)
    graph = model.graph
    del graph.input[:], graph.output[:]
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [1], [2.0])
    graph.initializer.append(scale)
    given = {n: x for n, x in feeds.items() if n != "input_ids"}
    for name, value in given.items():
        graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend(
        [
            helper.make_node("Mul", ["x", "scale"], ["doubled"]),
            helper.make_node("Cast", ["doubled"], ["input_ids"], to=TensorProto.INT32),
            *nodes,
            helper.make_node("Cast", ["sequences"], ["made"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["made", "scale"], ["y"]),
        ]
    )
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]))
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    x = feeds["input_ids"].astype(np.float32) / 2
    np.testing.assert_array_equal(run_model(model, {"x": x})[0], theirs(model, {"x": x})[0])

    async def run() -> tuple[Array, dict[str, str]]:
        session = await pyruntime.InferenceSession.create(model.SerializeToString())
        (y,) = await session.run_async(None, {"x": x})
        return y, {node.op_type: node.placement for node in session.explain().nodes}

    with on_device(NullDevice()):
        y, places = asyncio.run(run())
    assert y.shape == (2, 2, 9)
    assert places == {"Mul + Cast": "gpu", "BeamSearch": "host", "Cast + Mul": "gpu"}


REFUSED: dict[str, tuple[Callable[[], tuple[onnx.ModelProto, dict[str, Array]]], str]] = {}
"""What is refused, and what the message says of it."""


def refused(message: str) -> Callable[[Any], Any]:
    def decorate(make: Any) -> Any:
        REFUSED[make.__name__] = (make, message)
        return make

    return decorate


@refused("max_length to be more than the 3 tokens of the prompt, got 3")
def short() -> Any:
    return search(beams(max_length=i32([3]))), beams(max_length=i32([3]))


@refused("num_beams to be at most 128, got 129")
def too_many_beams() -> Any:
    return search(beams()), beams(num_beams=i32([129]))


@refused(r"max_length whose results take at most 17179869184 bytes \(limit `node_bytes`.*got 2147483647, which takes")
def endless() -> Any:
    return search(beams()), beams(max_length=i32([2**31 - 1]))


@refused("num_return_sequences to be at most num_beams, 3, got 4")
def too_many() -> Any:
    return search(beams()), beams(num_return_sequences=i32([4]))


@refused("num_beams to be one number of type int32, got int32.3.; feed another value")
def list_of_beams() -> Any:
    return search(beams()), beams(num_beams=i32([1, 2, 3]))


@refused("input_ids to be tokens of 0 to 22, got 4 to 23")
def unknown_token() -> Any:
    return search(beams()), beams(input_ids=i32([[5, 23], [4, 4]]))


@refused(r"vocab_mask to be int32 \[23\], got int32\[22\]")
def mask_of_another_size() -> Any:
    feeds = beams(vocab_mask=np.ones(22, np.int32))
    return search(feeds), feeds


@refused("repetition_penalty to be more than 0")
def no_penalty() -> Any:
    feeds = beams(repetition_penalty=np.zeros(1, np.float32))
    return search(feeds), feeds


@refused("decoder_input_ids to be absent for this model_type.*leave it out")
def forced_ids() -> Any:
    feeds = beams(decoder_input_ids=i32([[1], [2]]))
    return search(feeds), feeds


@refused("'decoder' to have inputs input_ids, position_ids, attention_mask, past_i .*past_sequence_length.*convert the")
def shared_buffers() -> Any:
    decoder = gpt(np.random.default_rng(0))
    decoder.input.append(helper.make_tensor_value_info("past_sequence_length", TensorProto.INT32, [1]))
    return search(beams(), decoder=decoder), beams()


@refused(r"'decoder' to have scores \[6, length, 20\] as first output \(vocab_size\), got \[6, 3, 23\]")
def padded_vocabulary() -> Any:
    return search(beams(), vocab_size=20), beams()


@refused("a subgraph 'encoder' for model_type 1, got none")
def no_encoder() -> Any:
    return search(beams(), model_type=1), beams()


@refused("'encoder' to have inputs encoder_input_ids, encoder_attention_mask, decoder_input_ids for outputs logits")
def other_encoder() -> Any:
    encoder, _ = encoder_decoder(np.random.default_rng(0), layers=1)
    _, decoder = encoder_decoder(np.random.default_rng(0), layers=2)
    feeds = beams()
    return search(feeds, model_type=1, encoder=encoder, decoder=decoder, decoder_start_token_id=START), feeds


@refused("a decoder_start_token_id of 0 or more, got -1")
def no_start() -> Any:
    encoder, decoder = encoder_decoder(np.random.default_rng(0))
    return search(beams(), model_type=1, encoder=encoder, decoder=decoder), beams()


def _whisper(outputs: list[str], **more: Any) -> Any:
    encoder, decoder = whisper(np.random.default_rng(0))
    feeds = beams(input_ids=np.ones((1, 8, 4), np.float32), logits_processor=i32([more.pop("timed", 0)]))
    given = {"eos_token_id": EOS, "pad_token_id": PAD, "decoder_start_token_id": START, **more}
    return model_of("WhisperBeamSearch", feeds, BEAM, outputs, encoder=encoder, decoder=decoder, **given), feeds


@refused("no cross_qk and no extra_decoding_ids, got one of these; convert the model without them")
def cross_qk() -> Any:
    return _whisper(["sequences", "", "", "cross_qk"])


@refused("no output non_speech_probs, got this output; convert the model without it")
def non_speech() -> Any:
    return _whisper(["sequences", "", "", "", "non_speech_probs"], no_speech_token_id=4)


@refused(r"beginning_timestamp_token_id in \[1, 22\] for logits_processor 1, got None")
def unknown_timestamps() -> Any:
    return _whisper(["sequences"], timed=1)


@refused("presence_penalty of 0, got 0.5.*convert the model without it")
def presence() -> Any:
    feeds = {"input_ids": i32([[5, 6]]), "max_length": i32([5])}
    given = {"eos_token_id": EOS, "pad_token_id": PAD, "presence_penalty": 0.5}
    return model_of("Sampling", feeds, GREEDY, ["sequences"], decoder=gpt(np.random.default_rng(0)), **given), feeds


@refused("GreedySearch.*a model_type of 0, a decoder alone, got 1; use BeamSearch with num_beams 1")
def greedy_encoder() -> Any:
    feeds = {"input_ids": i32([[5, 6]]), "max_length": i32([5])}
    encoder, decoder = encoder_decoder(np.random.default_rng(0))
    given = {"eos_token_id": EOS, "pad_token_id": PAD, "model_type": 1, "encoder": encoder, "decoder": decoder}
    return model_of("GreedySearch", feeds, GREEDY, ["sequences"], **given), feeds


@refused("BeamSearch takes 5 to 12 inputs, got 2")
def too_few() -> Any:
    feeds = {n: beams()[n] for n in ("input_ids", "max_length")}
    return search(feeds), feeds


@pytest.mark.parametrize("case", REFUSED)
def test_generation__what_does_not_fit__is_refused_with_a_next_step(case: str) -> None:
    make, message = REFUSED[case]
    model, feeds = make()
    with pytest.raises(errors.OrtError, match=f"(?s)'search'.*{message}"):
        run_model(model, feeds)


@pytest.mark.parametrize("outputs", [("", "sequences_scores"), ("", "", "scores"), ("sequences", "", "scores")])
def test_beam_search__absent_outputs__the_others_as_with_all(outputs: tuple[str, ...]) -> None:
    feeds = beams()
    every = ("sequences", "sequences_scores", "scores")
    wanted = dict(zip(every, run_model(search(feeds, every), feeds), strict=True))
    named = [name for name in outputs if name]
    for name, mine in zip(named, run_model(search(feeds, outputs), feeds), strict=True):
        np.testing.assert_array_equal(mine, wanted[name])
