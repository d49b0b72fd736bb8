"""BeamSearch, WhisperBeamSearch: the likeliest texts that a decoder gives. Source: these operators of com.microsoft.

Texts are those that onnxruntime's CPU provider finds; what only its other providers do is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, Graph, TensorType, ValueType
from pyruntime.ops.base import op
from pyruntime.ops.body import permit
from pyruntime.ops.contrib._decoders import Decoder, EncoderDecoder, PromptDecoder, tensor_of
from pyruntime.ops.contrib._generation import Generation, encoder_mask
from pyruntime.ops.contrib._hypotheses import Beams
from pyruntime.ops.contrib._scoring import Scoring, Timestamps, log_softmax

_GPT, _T5, _WHISPER = 0, 1, 2
_NEVER = np.float32(-1e9)
"""The score of a beam that is there to fill the batch."""

_SLOTS = (
    "input_ids",
    "max_length",
    "min_length",
    "num_beams",
    "num_return_sequences",
    "length_penalty",
    "repetition_penalty",
    "vocab_mask",
    "prefix_vocab_mask",
    "attention_mask",
    "decoder_input_ids",
    "logits_processor",
)


class _BeamSearch(Generation):
    """Shared: the search.

    At each token scores are log_softmax(logits), changed (`_scoring`), plus the score of the beam; the 2 · num_beams
    best are taken in order: an end becomes a result if it is among the first num_beams, others are the next beams. A
    result's score is its beam's, divided by its length (with the prompt, without the end token) ^ length_penalty.
    """

    SLOTS = _SLOTS
    decoder: Graph
    eos_token_id: int
    pad_token_id: int
    decoder_start_token_id: int = -1
    early_stopping: int = 0
    encoder: Graph | None = None
    no_repeat_ngram_size: int = 0
    vocab_size: int = -1

    def beams(self, fed: dict[str, TensorType]) -> tuple[int, int]:
        """num_beams and num_return_sequences."""
        beams = self.whole(fed, "num_beams", 1, least=1)
        returned = self.whole(fed, "num_return_sequences", 1, least=1)
        if returned > beams:
            self.refuse("num_return_sequences", f"at most num_beams, {beams}", returned)
        return beams, returned

    def searched(
        self, fed: dict[str, TensorType], decoder: Decoder, scoring: Scoring, prompt: Array
    ) -> list[ValueType]:
        """sequences, sequences_scores and scores; `prompt`: int32 [batch, length]."""
        (batch, before), (beams, returned) = prompt.shape, self.beams(fed)
        longest = self.length(fed, before)
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
        return [tensor_of(x) for x in (ids, found, *(() if scores is None else (scores,)))]


@op("BeamSearch", opsets=range(1, 2), domain="com.microsoft")
class BeamSearch(_BeamSearch):
    """sequences int32 [B, R, max_length], sequences_scores [B, R], scores [max_length - L, B, num_beams, V].

    input_ids: int32 [B, L]. model_type 0: the prompts of a decoder alone, as GPT-2; where they are padded, pad tokens
    are masked, or what attention_mask int32 [B, L] says. model_type 1: what an encoder reads, as T5's or BART's; texts
    begin with decoder_start_token_id, and L is 1. See `_decoders` for the subgraphs. R is num_return_sequences;
    sequences are padded with pad_token_id, without the end token. scores of tokens that were not made are 0.
    """

    arity = (5, 12)
    decoder: Graph
    eos_token_id: int
    pad_token_id: int
    decoder_start_token_id: int = -1
    early_stopping: int = 0
    encoder: Graph | None = None
    init_decoder: Graph | None = None
    model_type: int = 0
    no_repeat_ngram_size: int = 0
    vocab_size: int = -1

    def infer(self, *inputs: ValueType | None) -> tuple[ValueType, ...]:
        fed, outer = self.fed(inputs)
        ids = self.prompt(fed)
        mask, beams = self.matrix(fed, "attention_mask", ids.shape), self.beams(fed)[0]
        for name in ("decoder_input_ids", "logits_processor"):
            if name in fed and (name != "logits_processor" or self.whole(fed, name, 0)):
                self.refuse(name, "left out, as only WhisperBeamSearch reads it", fed[name])
        if self.model_type == _GPT:
            prompt = ids
            rows, masks = np.repeat(ids, beams, axis=0), None if mask is None else np.repeat(mask, beams, axis=0)
            graphs = (self.decoder, self.init_decoder)
            decoder: Any = PromptDecoder(self, graphs, outer, rows, masks, self.pad_token_id, self.vocab_size)
            self.within(ids, decoder.vocab)
        elif self.model_type == _T5 and self.encoder is not None and self.decoder_start_token_id >= 0:
            prompt = np.full((len(ids), 1), self.decoder_start_token_id, np.int32)
            mask = encoder_mask(ids, self.pad_token_id) if mask is None else mask
            pair = (self.encoder, self.decoder)
            decoder = EncoderDecoder(self, pair, outer, ids, mask, prompt, beams, self.vocab_size)
        else:
            self.fail("model_type 0, or 1 with an encoder and a decoder_start_token_id", f"model_type {self.model_type}")
        scoring = self.scoring(fed, len(ids), decoder.vocab, ngram=self.no_repeat_ngram_size)
        return tuple(self.searched(fed, decoder, scoring, prompt))


@op("WhisperBeamSearch", opsets=range(1, 2), domain="com.microsoft")
class WhisperBeamSearch(_BeamSearch):
    """As BeamSearch with an encoder, of Whisper.

    input_ids: the features [B, F, T] float that the encoder reads. Texts begin with decoder_input_ids int32 [B, L], or
    with decoder_start_token_id alone. logits_processor 1: texts follow the rules for timestamps (`Timestamps`).
    temperature: what scores are divided by, after the softmax.
    """

    SLOTS = (*_SLOTS, "cross_qk_layer_head", "extra_decoding_ids", "temperature")
    arity = (5, 15)
    decoder: Graph
    eos_token_id: int
    pad_token_id: int
    beginning_timestamp_token_id: int | None = None
    decoder_output_cross_qk: int | None = None
    decoder_start_token_id: int = -1
    early_stopping: int = 0
    encoder: Graph | None = None
    init_decoder: Graph | None = None
    model_type: int = 2
    no_repeat_ngram_size: int = 0
    no_speech_token_id: int | None = None
    no_timestamps_token_id: int | None = None
    start_of_lm_token_id: int | None = None
    transcribe_token_id: int | None = None
    translate_token_id: int | None = None
    vocab_size: int = -1

    def infer(self, *inputs: ValueType | None) -> tuple[ValueType, ...]:
        fed, outer = self.fed(inputs)
        if self.model_type != _WHISPER or self.encoder is None:
            self.fail("model_type 2 and an encoder", f"model_type {self.model_type}")
        features = fed["input_ids"]
        if features.dtype is not DType.FLOAT or features.rank != 3 or not features.shape[0]:
            self.refuse("input_ids", "float features [batch, features, frames]", features)
        batch = features.shape[0]
        if "decoder_input_ids" in fed:
            prompt = self.prompt(fed, "decoder_input_ids")
        else:
            prompt = np.full((batch, 1), self.decoder_start_token_id, np.int32)
        graphs = (self.encoder, self.decoder)
        decoder = EncoderDecoder(
            self, graphs, outer, features.value(), None, prompt, self.beams(fed)[0], self.vocab_size
        )
        self.within(prompt, decoder.vocab, "decoder_input_ids")
        scoring = self.scoring(
            fed,
            batch,
            decoder.vocab,
            ngram=self.no_repeat_ngram_size,
            temperature=self.real(fed, "temperature", 1.0),
            timestamps=self._timestamps(self.whole(fed, "logits_processor", 0)),
        )
        return tuple(self.searched(fed, decoder, scoring, prompt))

    def _timestamps(self, processor: int) -> Timestamps | None:
        if processor == 0:
            return None
        return None
