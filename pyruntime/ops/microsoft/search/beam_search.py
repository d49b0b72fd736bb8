"""BeamSearch, WhisperBeamSearch: the likeliest texts that a decoder gives. Source: these operators of com.microsoft.

Texts are those that onnxruntime's CPU provider finds; what only its other providers do is refused.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pyruntime.ir import Array, DType, Graph, TensorType, ValueType
from pyruntime.ops.base import attributes, op
from pyruntime.ops.control.body import permit
from pyruntime.ops.microsoft.search.decoders import Decoder, EncoderDecoder, PromptDecoder, tensor_of
from pyruntime.ops.microsoft.search.generation import Generation, encoder_mask
from pyruntime.ops.microsoft.search.hypotheses import Beams
from pyruntime.ops.microsoft.search.scoring import Scoring, Timestamps, log_softmax

_GPT, _T5, _WHISPER = 0, 1, 2
_MOST_BEAMS = 128
"""As onnxruntime has it."""

_NEVER = np.float32(-1e9)
"""The score of a beam that is there to fill the batch."""

_INPUTS = (
    "input_ids max_length min_length num_beams num_return_sequences length_penalty repetition_penalty"
    " vocab_mask prefix_vocab_mask attention_mask decoder_input_ids logits_processor"
)


@attributes
class _BeamSearch(Generation):
    """Beam search, for BeamSearch and WhisperBeamSearch.

    At each token scores are log_softmax(logits), changed (`_scoring`), plus the score of the beam; the 2 · num_beams
    best are taken in order: an end becomes a result if it is among the first num_beams, others are the next beams. A
    result's score is its beam's, divided by its length (with the prompt, without the end token) ^ length_penalty.
    """

    inputs: ClassVar[str] = _INPUTS
    early_stopping: int = 0

    def beams(self, fed: dict[str, TensorType]) -> tuple[int, int]:
        """num_beams and num_return_sequences."""
        beams = self.whole(fed, "num_beams", 1, least=1)
        if beams > _MOST_BEAMS:
            self.refuse("num_beams", f"at most {_MOST_BEAMS}", beams)
        returned = self.whole(fed, "num_return_sequences", 1, least=1)
        if returned > beams:
            self.refuse("num_return_sequences", f"at most num_beams, {beams}", returned)
        return beams, returned

    def graphs(self) -> tuple[Graph, Graph]:
        """The encoder and the decoder."""
        if self.encoder is None:
            self.fail(f"a subgraph 'encoder' for model_type {self.model_type}", "none")
        return self.encoder, self.decoder

    def start(self, batch: int) -> Array:
        """decoder_start_token_id for every entry, int32 [batch, 1]."""
        if self.decoder_start_token_id < 0:
            self.fail("a decoder_start_token_id of 0 or more", self.decoder_start_token_id)
        return np.full((batch, 1), self.decoder_start_token_id, np.int32)

    def timestamps(self, vocab: int) -> Timestamps:
        """Whisper's rules for timestamps, with the tokens that the attributes name."""
        self.fail("no logits_processor 1", "it; only WhisperBeamSearch has the tokens of timestamps")

    def transcribed(self, fed: dict[str, TensorType], outer: dict[str, ValueType]) -> tuple[ValueType, ...]:
        """The outputs for features [batch, features, frames], Whisper's."""
        features = fed.get("input_ids")
        if features is None or features.dtype is not DType.FLOAT or features.rank != 3 or not features.shape[0]:
            self.refuse("input_ids", "float features [batch, features, frames]", features)
        if "attention_mask" in fed:
            self.refuse("attention_mask", "absent", fed["attention_mask"], "leave it out, as Whisper has none")
        given = self.prompt(fed, "decoder_input_ids") if "decoder_input_ids" in fed else None
        prompt = self.start(features.shape[0]) if given is None else given
        if len(prompt) != features.shape[0]:
            self.refuse("decoder_input_ids", f"a batch of {features.shape[0]}, as input_ids has", len(prompt))
        beams = self.beams(fed)[0]
        decoder = EncoderDecoder(self, self.graphs(), outer, features.value(), None, prompt, beams, self.vocab_size)
        self.within(prompt, decoder.vocab, "decoder_input_ids")
        timed = self.whole(fed, "logits_processor", 0, least=0) == 1
        scoring = self.scoring(
            fed,
            len(prompt),
            decoder.vocab,
            temperature=self.real(fed, "temperature", 1.0),
            timestamps=self.timestamps(decoder.vocab) if timed else None,
        )
        return self.searched(fed, decoder, scoring, prompt)

    def searched(
        self, fed: dict[str, TensorType], decoder: Decoder, scoring: Scoring, prompt: Array
    ) -> tuple[ValueType, ...]:
        """sequences, sequences_scores and scores; `prompt`: int32 [batch, length]."""
        (batch, before), (beams, returned) = prompt.shape, self.beams(fed)
        longest = self.length(fed, before, batch * beams, decoder.vocab if self.wants(2) else 0)
        search = Beams(
            batch,
            beams,
            end=self.eos_token_id,
            pad=self.pad_token_id,
            length_penalty=self.real(fed, "length_penalty", 1.0),
            early_stopping=self.early_stopping == 1,
        )
        totals = np.where(np.arange(batch * beams) % beams, _NEVER, np.float32(0))
        sequences, scores = np.repeat(prompt, beams, axis=0), None
        logits = decoder.first()
        for step in range(longest - before):
            permit(self, step)
            every = scoring(log_softmax(logits), sequences, first=step == 0) + totals[:, None]
            if self.wants(2):
                if scores is None:
                    scores = np.zeros((longest - before, batch, beams, every.shape[1]), np.float32)
                scores[step] = every.reshape(scores.shape[1:])
            made = search.follow(every, sequences)
            totals = made.scores
            sequences = np.concatenate((sequences[made.origins], made.tokens[:, None]), axis=1)
            if search.over or step == longest - before - 1:
                break
            logits = decoder.step(made.tokens, made.origins if beams > 1 else None, sequences)
        ids, found = search.finish(sequences, totals, longest, returned)
        return tuple(tensor_of(x) for x in (ids, found, *(() if scores is None else (scores,))))


@op("BeamSearch", opsets=range(1, 2), domain="com.microsoft")
class BeamSearch(_BeamSearch):
    """sequences int32 [B, R, max_length], sequences_scores [B, R], scores [max_length - L, B, num_beams, V].

    input_ids: int32 [B, L]. model_type 0: the prompts of a decoder alone, as GPT-2; where they are padded, pad tokens
    are masked, or what attention_mask int32 [B, L] says. model_type 1: what an encoder reads, as T5's or BART's; texts
    begin with decoder_start_token_id, and L is 1. model_type 2: as WhisperBeamSearch. See `_decoders` for the
    subgraphs. R is num_return_sequences; sequences are padded with pad_token_id, without the end token. Scores of
    tokens that were not made are 0.
    """

    arity = (5, 12)

    def infer(self, *inputs: ValueType | None) -> tuple[ValueType, ...]:
        fed, outer = self.fed(inputs)
        if self.model_type == _WHISPER:
            return self.transcribed(fed, outer)
        for name in ("decoder_input_ids", "logits_processor"):
            if name in fed:
                self.refuse(
                    name, "absent for this model_type", fed[name], "leave it out, as onnxruntime does not read it"
                )
        if self.model_type == _GPT:
            return self._continued(fed, outer)
        if self.model_type == _T5:
            return self._translated(fed, outer)
        self.fail("a model_type of 0, 1 or 2", self.model_type)

    def _continued(self, fed: dict[str, TensorType], outer: dict[str, ValueType]) -> tuple[ValueType, ...]:
        """The outputs for a model that continues a prompt."""
        ids, beams = self.prompt(fed), self.beams(fed)[0]
        mask = self.matrix(fed, "attention_mask", ids.shape)
        rows, masks = np.repeat(ids, beams, axis=0), None if mask is None else np.repeat(mask, beams, axis=0)
        graphs = (self.decoder, self.init_decoder)
        decoder = PromptDecoder(self, graphs, outer, rows, masks, self.pad_token_id, self.vocab_size)
        self.within(ids, decoder.vocab)
        return self.searched(fed, decoder, self.scoring(fed, len(ids), decoder.vocab), ids)

    def _translated(self, fed: dict[str, TensorType], outer: dict[str, ValueType]) -> tuple[ValueType, ...]:
        """The outputs for a decoder that reads the states of an encoder."""
        ids, graphs = self.prompt(fed), self.graphs()
        mask = self.matrix(fed, "attention_mask", ids.shape)
        mask = encoder_mask(ids, self.pad_token_id) if mask is None else mask
        prompt = self.start(len(ids))
        decoder = EncoderDecoder(self, graphs, outer, ids, mask, prompt, self.beams(fed)[0], self.vocab_size)
        self.within(prompt, decoder.vocab, "decoder_start_token_id")
        scoring = self.scoring(fed, len(ids), decoder.vocab)
        return self.searched(fed, decoder, scoring, prompt)


@op("WhisperBeamSearch", opsets=range(1, 2), domain="com.microsoft")
class WhisperBeamSearch(_BeamSearch):
    """As BeamSearch with an encoder, of Whisper.

    input_ids: the features [B, F, T] float that the encoder reads. Texts begin with decoder_input_ids int32 [B, L], or
    with decoder_start_token_id alone. logits_processor 1: texts follow the rules for timestamps (`Timestamps`).
    temperature: what scores are divided by, after the softmax.
    """

    inputs: ClassVar[str] = f"{_INPUTS} cross_qk_layer_head extra_decoding_ids temperature"
    arity = (5, 15)
    model_type: int = _WHISPER
    beginning_timestamp_token_id: int | None = None
    decoder_output_cross_qk: int | None = None
    no_speech_token_id: int | None = None
    no_timestamps_token_id: int | None = None
    start_of_lm_token_id: int | None = None
    transcribe_token_id: int | None = None
    translate_token_id: int | None = None

    def infer(self, *inputs: ValueType | None) -> tuple[ValueType, ...]:
        fed, outer = self.fed(inputs)
        if self.model_type != _WHISPER:
            self.fail("model_type 2", self.model_type)
        if self.decoder_output_cross_qk or self.wants(3) or "extra_decoding_ids" in fed:
            self.fail("no cross_qk and no extra_decoding_ids", "one of them; convert the model without them")
        if self.wants(4):
            self.fail("no output non_speech_probs", "it; convert the model without it (no_speech_probs)")
        return self.transcribed(fed, outer)

    def timestamps(self, vocab: int) -> Timestamps:
        first = self.beginning_timestamp_token_id
        if first is None or not 0 < first < vocab:
            self.fail(f"beginning_timestamp_token_id in [1, {vocab - 1}] for logits_processor 1", first)
        others = (self.no_timestamps_token_id, self.translate_token_id, self.transcribe_token_id)
        no_timestamps, translate, transcribe = (-1 if token is None else token for token in others)
        return Timestamps(
            end=self.eos_token_id,
            start=self.decoder_start_token_id,
            start_of_lm=-1 if self.start_of_lm_token_id is None else self.start_of_lm_token_id,
            no_timestamps=no_timestamps,
            translate=translate,
            transcribe=transcribe,
            first=first,
        )
