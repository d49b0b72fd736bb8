"""BeamSearch and WhisperBeamSearch: generate the likeliest sequences. Source: com.microsoft operators of these names.

Results are those of onnxruntime's CPU provider. Features that only its other providers have raise InvalidGraph.
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
"""Limit of onnxruntime."""

_NEVER = np.float32(-1e9)
"""Initial score of all beams but the first, which start from the same prompt."""

_INPUTS = (
    "input_ids max_length min_length num_beams num_return_sequences length_penalty repetition_penalty"
    " vocab_mask prefix_vocab_mask attention_mask decoder_input_ids logits_processor"
)


@attributes
class _BeamSearch(Generation):
    """Base of BeamSearch and WhisperBeamSearch.

    At each token, candidates are scored by log_softmax(logits), modified as in `scoring.py`, plus the score of the
    beam. The 2 · num_beams best are taken in order: end tokens among the first num_beams finish a result, other tokens
    continue a beam. The score of a result is that of its beam divided by length ^ length_penalty; the length includes
    the prompt but not the end token.
    """

    inputs: ClassVar[str] = _INPUTS
    early_stopping: int = 0

    def beams(self, fed: dict[str, TensorType]) -> tuple[int, int]:
        """Return num_beams and num_return_sequences."""
        beams = self.whole(fed, "num_beams", 1, least=1)
        if beams > _MOST_BEAMS:
            self.refuse("num_beams", f"at most {_MOST_BEAMS}", beams)
        returned = self.whole(fed, "num_return_sequences", 1, least=1)
        if returned > beams:
            self.refuse("num_return_sequences", f"at most num_beams, {beams}", returned)
        return beams, returned

    def graphs(self) -> tuple[Graph, Graph]:
        """Return the encoder and the decoder. Raises InvalidGraph without an encoder."""
        if self.encoder is None:
            self.fail(f"a subgraph 'encoder' for model_type {self.model_type}", "none")
        return self.encoder, self.decoder

    def start(self, batch: int) -> Array:
        """Return decoder_start_token_id for each batch entry, int32 [batch, 1]."""
        if self.decoder_start_token_id < 0:
            self.fail("a decoder_start_token_id of 0 or more", self.decoder_start_token_id)
        return np.full((batch, 1), self.decoder_start_token_id, np.int32)

    def timestamps(self, vocab: int) -> Timestamps:
        """Return Whisper's timestamp rules with the token ids of the attributes."""
        self.fail("no logits_processor", "1; only WhisperBeamSearch has timestamp tokens")

    def transcribed(self, fed: dict[str, TensorType], outer: dict[str, ValueType]) -> tuple[ValueType, ...]:
        """Return the outputs for a Whisper model with input features [batch, features, frames]."""
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
        """Run the search from `prompt` (int32 [batch, length]); returns sequences, sequences_scores and scores."""
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

    input_ids: int32 [B, L]. model_type 0 is a decoder only, such as GPT-2: input_ids are prompts, masked by
    attention_mask (int32 [B, L]) or where they are padded. model_type 1 is an encoder-decoder, such as T5 or BART: the
    encoder reads input_ids, sequences start with decoder_start_token_id, and L is 1. model_type 2 is as in
    WhisperBeamSearch. For the subgraphs see `decoders.py`. R is num_return_sequences. Sequences exclude the end token
    and are padded with pad_token_id. Scores of steps that were not run are 0.
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
        """Return the outputs for a decoder-only model."""
        ids, beams = self.prompt(fed), self.beams(fed)[0]
        mask = self.matrix(fed, "attention_mask", ids.shape)
        rows, masks = np.repeat(ids, beams, axis=0), None if mask is None else np.repeat(mask, beams, axis=0)
        graphs = (self.decoder, self.init_decoder)
        decoder = PromptDecoder(self, graphs, outer, rows, masks, self.pad_token_id, self.vocab_size)
        self.within(ids, decoder.vocab)
        return self.searched(fed, decoder, self.scoring(fed, len(ids), decoder.vocab), ids)

    def _translated(self, fed: dict[str, TensorType], outer: dict[str, ValueType]) -> tuple[ValueType, ...]:
        """Return the outputs for an encoder-decoder model with token inputs."""
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
    """BeamSearch for Whisper.

    input_ids: features [B, F, T], float. Sequences start with decoder_input_ids (int32 [B, L]) or
    decoder_start_token_id. With logits_processor 1 they follow Whisper's timestamp rules (`Timestamps`). temperature
    divides the scores after the softmax.
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
            self.fail("no cross_qk and no extra_decoding_ids", "one of these; convert the model without them")
        if self.wants(4):
            self.fail("no output non_speech_probs", "this output; convert the model without it (no_speech_probs)")
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
