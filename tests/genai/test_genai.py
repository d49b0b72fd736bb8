"""onnxruntime-genai's names, signatures and results.

data/signatures.json, data/results.json, data/beams.json and data/beam_rules.json are what onnxruntime-genai 0.18.0 has,
and what its CPU writes in a folder of `write_folder`: when it runs the scripts of scripts/, and by beam search.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyruntime
from pyruntime import genai
from tests.genai.folder import write_folder

HERE = Path(__file__).parent
SCRIPTS = ("batch", "chat", "constrained", "model_qa", "search_options", "streaming")

NOT_HERE = {
    "Adapters": "LoRA adapters",
    "Audios": "models with sound",
    "Images": "models with pictures",
    "MultiModalProcessor": "models with pictures or sound",
    "NamedTensors": "what processors make",
    "StreamingProcessor": "models with sound",
    "MtpGenerator": "models that predict several tokens",
    "Engine": "continuous batching",
    "EngineCapabilities": "continuous batching",
    "EngineErrorCode": "continuous batching",
    "EngineEvent": "continuous batching",
    "EngineEventBuffer": "continuous batching",
    "EngineEventFlags": "continuous batching",
    "FinishReason": "continuous batching",
    "Request": "continuous batching",
    "RequestOptions": "continuous batching",
    "TurnOptions": "continuous batching",
    "TurnUsage": "continuous batching",
    "get_current_gpu_device_id": "there is one device",
    "set_current_gpu_device_id": "there is one device",
    "register_execution_provider_library": "there are no native libraries",
    "unregister_execution_provider_library": "there are no native libraries",
    "set_log_callback": "Python's logging is there",
    "Config.from_package_ep": "model packages",
    "Config.clear_decoder_provider_options_hardware_device_id": "there is one device",
    "Config.clear_decoder_provider_options_hardware_device_type": "there is one device",
    "Config.clear_decoder_provider_options_hardware_vendor_id": "there is one device",
    "Config.set_decoder_provider_options_hardware_device_id": "there is one device",
    "Config.set_decoder_provider_options_hardware_device_type": "there is one device",
    "Config.set_decoder_provider_options_hardware_vendor_id": "there is one device",
    "Generator.get_input": "inputs are not kept",
    "Generator.get_speculative_stats": "speculative decoding",
    "Generator.set_active_adapter": "LoRA adapters",
    "Generator.set_hidden_states": "models that predict several tokens",
    "Generator.set_inputs": "what processors make",
    "Generator.set_model_input": "inputs of other roles",
    "Generator.snapshot_state": "recurrent states do not go back",
    "GeneratorParams.get_speculative_options": "speculative decoding",
    "GeneratorParams.set_speculative_options": "speculative decoding",
    "Model.create_multimodal_processor": "models with pictures or sound",
    "Model.create_streaming_processor": "models with sound",
    "Tensor.data": "there is no DLPack here",
    "Tensor.type": "it fails in the wheel too",
    "Tokenizer.bor_token_id": "tokens of single model families",
    "Tokenizer.bot_token_id": "tokens of single model families",
    "Tokenizer.eor_token_id": "tokens of single model families",
    "Tokenizer.eot_token_id": "tokens of single model families",
}


def names() -> dict[str, Any]:
    """Everything the wheel has, methods as 'Class.method'."""
    found: dict[str, Any] = {}
    for name, members in json.loads((HERE / "data" / "signatures.json").read_text()).items():
        found[name] = None
        if isinstance(members, dict) and name not in NOT_HERE:
            found |= {f"{name}.{member}": kind for member, kind in members.items()}
    return found


def ours(path: str) -> Any:
    owner, _, member = path.partition(".")
    found = getattr(genai, owner, None)
    return inspect.getattr_static(found, member, None) if member and found is not None else found


def test_names__of_the_wheel__are_here_or_listed() -> None:
    assert sorted(path for path in names() if ours(path) is None) == sorted(NOT_HERE)


@pytest.mark.parametrize("path", [p for p, kind in names().items() if kind and p not in NOT_HERE])
def test_signatures__of_the_wheel__are_the_same(path: str) -> None:
    kind = names()[path]
    if kind == "property":
        assert isinstance(ours(path), property)
        return
    parameters = list(inspect.signature(ours(path)).parameters.values())
    for expected in kind:
        got = [("**" if p.kind is p.VAR_KEYWORD else "") + p.name for p in parameters]
        assert got == [n for n in expected if n != "*"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_script__import_changed__results_of_the_wheel(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    source = (HERE / "scripts" / f"{name}.py").read_text("utf-8")
    assert source.count("import onnxruntime_genai as og\n") == 1
    space: dict[str, Any] = {}
    exec(compile(source.replace("import onnxruntime_genai as og", "import pyruntime.genai as og"), name, "exec"), space)
    assert space["results"] == json.loads((HERE / "data" / "results.json").read_text())[name]


def test_guidance__regex__is_kept_to_and_a_grammar_is_refused(tmp_path: Path) -> None:
    model = genai.Model(str(write_folder(tmp_path)))
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=40, do_sample=True, random_seed=3)
    params.set_guidance("regex", "[a-d]{3} (the|at)[0-9]+")
    generator = genai.Generator(model, params)
    generator.append_tokens([5, 6, 7])
    while not generator.is_done():
        generator.generate_next_token()

    text = genai.Tokenizer(model).decode(generator.get_sequence(0)[3:])
    assert re.fullmatch("[a-d]{3} (the|at)[0-9]+", text), text
    with pytest.raises(pyruntime.NotImplemented, match="lark_grammar"):
        params.set_guidance("lark_grammar", "start: x")


def test_async__steps__as_synchronous_ones(tmp_path: Path) -> None:
    folder = str(write_folder(tmp_path))

    async def run() -> list[int]:
        model = await genai.Model.create(folder)
        params = genai.GeneratorParams(model)
        params.set_search_options(max_length=20)
        generator = genai.Generator(model, params)
        await generator.append_tokens_async([5, 6, 7])
        return [int(tokens[0]) async for tokens in generator]

    model = genai.Model(folder)
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=20)
    generator = genai.Generator(model, params)
    generator.append_tokens(np.array([5, 6, 7], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    assert asyncio.run(run()) == generator.get_sequence(0)[3:].tolist()


def test_errors__as_runtime_errors_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="genai_config"):
        genai.Model(str(tmp_path))
    model = genai.Model(str(write_folder(tmp_path)))
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=5)
    generator = genai.Generator(model, params)
    with pytest.raises(RuntimeError, match="no prior state"):
        generator.generate_next_token()
    with pytest.raises(RuntimeError, match="exceeds max length"):
        generator.append_tokens([1] * 6)
    params.set_search_options(num_beams=3, batch_size=2)
    with pytest.raises(RuntimeError, match="one prompt"):
        genai.Generator(model, params).append_tokens([[1, 2], [3, 4]])


def test_beams__sequences_of_the_wheel(tmp_path: Path) -> None:
    model = genai.Model(str(write_folder(tmp_path)))
    for prompt, beams, length_penalty, expected in json.loads((HERE / "data" / "beams.json").read_text()):
        assert searched(model, prompt, num_beams=beams, length_penalty=length_penalty) == expected


def searched(model: genai.Model, prompt: list[int], pattern: str = "", **options: Any) -> list[int]:
    """What a beam search writes; with a pattern, kept to it."""
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=24, **options)
    if pattern:
        params.set_guidance("regex", pattern)
    generator = genai.Generator(model, params)
    generator.append_tokens(prompt)
    while not generator.is_done():
        generator.generate_next_token()
    made: list[int] = generator.get_sequence(0).tolist()
    return made


def test_beams__with_penalties_ngrams_and_lengths__sequences_of_the_wheel(tmp_path: Path) -> None:
    model = genai.Model(str(write_folder(tmp_path)))
    for prompt, options, expected in json.loads((HERE / "data" / "beam_rules.json").read_text()):
        assert searched(model, prompt, num_beams=4, **options) == expected, options


@pytest.mark.parametrize("pattern", ["[a-d]{3} (the|at)[0-9]{2}", "yes", "(a|ab|abc)[.]"])
def test_beams__with_a_constraint__keep_to_it(pattern: str, tmp_path: Path) -> None:
    """The wheel fails here: its constraint is one for all beams."""
    model = genai.Model(str(write_folder(tmp_path)))
    ids = searched(model, [5, 6, 7], pattern, num_beams=3)
    assert re.fullmatch(pattern, genai.Tokenizer(model).decode(ids[3:]))


def test_beams__with_draws__are_refused(tmp_path: Path) -> None:
    model = genai.Model(str(write_folder(tmp_path)))
    with pytest.raises(RuntimeError, match="do_sample=False, or num_beams=1"):
        searched(model, [5, 6, 7], num_beams=3, do_sample=True, top_k=5)


def test_ends__forced_at_a_step__sequences_of_the_wheel(tmp_path: Path) -> None:
    """What onnxruntime-genai 0.18.0 says after each step: done, next tokens, sequences.

    The step in which the last sequence ends leaves them as they are; a single text goes on from there.
    """
    model = genai.Model(str(write_folder(tmp_path)))

    def said(generator: genai.Generator, tokens: list[int]) -> tuple[bool, list[int], list[list[int]]]:
        logits = np.full_like(generator.get_logits(), -5)
        logits[np.arange(len(tokens)), 0, tokens] = 9
        generator.set_logits(logits)
        generator.generate_next_token()
        sequences = [generator.get_sequence(row).tolist() for row in range(len(tokens))]
        assert generator.token_count() == len(sequences[0])
        return generator.is_done(), generator.get_next_tokens().tolist(), sequences

    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=10, batch_size=2)
    generator = genai.Generator(model, params)
    generator.append_tokens(np.array([[5, 6, 7], [8, 9, 10]], np.int32))
    assert said(generator, [3, 4]) == (False, [3, 4], [[5, 6, 7, 3], [8, 9, 10, 4]])
    assert said(generator, [1, 5]) == (False, [1, 5], [[5, 6, 7, 3, 1], [8, 9, 10, 4, 5]])
    last = [[5, 6, 7, 3, 1, 0], [8, 9, 10, 4, 5, 6]]
    assert said(generator, [7, 6]) == (False, [0, 6], last)
    assert said(generator, [8, 1]) == (True, [0, 1], last)

    params.set_search_options(batch_size=1)
    generator = genai.Generator(model, params)
    generator.append_tokens([5, 6, 7])
    assert said(generator, [35]) == (False, [35], [[5, 6, 7, 35]])
    assert said(generator, [1]) == (True, [1], [[5, 6, 7, 35]])
    generator.generate_next_token()
    assert (generator.get_next_tokens().tolist(), generator.get_sequence(0).tolist()) == ([0], [5, 6, 7, 35])
    generator.append_tokens([8, 9])
    for _ in range(3):
        generator.generate_next_token()
    assert generator.get_sequence(0).tolist() == [5, 6, 7, 35, 8, 9, 39, 26, 39]
