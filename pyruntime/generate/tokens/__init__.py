"""Reader of tokenizer.json in pure Python: normalizers, pre-tokenizers, models, post-processors and decoders."""
