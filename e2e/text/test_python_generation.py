"""Python's generation on the GPU: processors in WGSL, and texts beyond the model's context."""

from __future__ import annotations

from typing import Any

from e2e.harness.python import BrowserPython
from pyruntime.generate.generator import TextGenerator
from tests.generate import test_processors, test_trimming
from tests.generate.test_generator import MADE, model, written
from tests.generate.test_window import greedy as windowed

GENERATE = """
    import pyruntime as ort
    from pyruntime.device.tensor import DeviceTensor
    from pyruntime.generate.decoder import DecoderModel
    from pyruntime.generate.generator import TextGenerator
    from pyruntime.generate.options import GenerationOptions

    session = await ort.InferenceSession.create(model)
    decoder, texts, read = DecoderModel(session), [], []
    downloaded = DeviceTensor.downloaded

    async def counted(tensors):
        read.extend(tensor.type.shape for tensor in tensors)
        return await downloaded(tensors)

    scope = dict(ort=ort, np=__import__("numpy"), Any=object)
    for source in operators:
        exec(source, scope)
    DeviceTensor.downloaded = staticmethod(counted)
    try:
        for given in options:
            processors = tuple(eval(p, scope) for p in given.pop("processors", []))
            made = {}
            stream = TextGenerator(decoder).generate(prompt, GenerationOptions(processors=processors, **given))
            async for piece in stream:
                made.setdefault(piece.sequence, []).append(piece.id)
            texts.append(list(made.values()))
    finally:
        DeviceTensor.downloaded = staticmethod(downloaded)
    decoder.release()
    {"texts": texts, "read": [list(shape) for shape in read]}
"""

OPERATORS = [
    f'@ort.custom_op("tests.generate", "{name}")\n{source.strip()}'
    for name, source in (("OnlyEven", test_processors.ONLY_EVEN), ("Rarer", test_processors.RARER))
]


def generated(python: BrowserPython, prompt: Any, options: list[dict[str, Any]], model: bytes = MADE.model) -> Any:
    """The texts of these options on the GPU, and the shapes of what was read."""
    return python(GENERATE, model=model, operators=OPERATORS, prompt=prompt, options=options)


def test_operators_as_processors__on_the_gpu__no_logits_are_read(python_in_browser: BrowserPython) -> None:
    always: dict[str, Any] = {"max_new_tokens": 30}
    drawn = {**always, "do_sample": True, "seed": 4, "temperature": 0.8}
    wanted = [
        {**always, "processors": ["OnlyEven()"]},
        {**always, "processors": ["Rarer(by=0.7)"]},
        {**drawn, "frequency_penalty": 0.7},
        {**drawn, "processors": ["Rarer(by=0.7)"]},
    ]
    prompt = [[1, 2, 3], [5, 5, 5]]
    found = generated(python_in_browser, prompt, wanted)
    even, rarer, penalty, alike = found["texts"]
    assert all(token % 2 == 0 for text in even for token in text)
    assert rarer == written(TextGenerator(model()), prompt, max_new_tokens=30, frequency_penalty=0.7)
    assert penalty == alike
    assert {tuple(shape) for shape in found["read"]} == {(2, 1)}, "ids and log-probabilities alone are read"


def test_window__on_the_gpu__tokens_of_onnxruntime_after_the_window(python_in_browser: BrowserPython) -> None:
    prompt = [7, 3, 9, 1, 12]
    options = [{"max_new_tokens": 50, "window": 12, "sinks": 4, "ahead": ahead} for ahead in (1, 4)]
    found = generated(python_in_browser, prompt, options)
    assert found["texts"] == [[windowed(prompt, 50, 12, 4)]] * 2


def test_window__long_prompt_and_predictions_on_the_gpu__the_same_tokens(
    python_in_browser: BrowserPython,
) -> None:
    prompt = [5, 6, 7, 8, 9] * 8
    options = [{"max_new_tokens": 50, "window": 20, "sinks": 3, "lookup": lookup} for lookup in (0, 4)]
    found = generated(python_in_browser, prompt, options)
    assert found["texts"] == [[windowed(prompt, 50, 20, 3)]] * 2


def test_trimming__local_attention_on_the_gpu__tokens_of_whole_caches(python_in_browser: BrowserPython) -> None:
    """Text twice as long as the table of angles; rows outside every window are dropped, keys are turned on the GPU."""
    prompt = test_trimming.prompt_of(60)
    options = [{"max_new_tokens": 60, "ahead": ahead} for ahead in (1, 4)]
    for form in ("plain", "interleaved"):
        found = generated(python_in_browser, prompt, options, test_trimming.made(form).model)
        assert found["texts"] == [[test_trimming.greedy(prompt, 60, form)]] * 2
        assert all(len(shape) == 2 for shape in found["read"]), "caches stay on the GPU"
