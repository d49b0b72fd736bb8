"""A reader of tokenizer.json: normalizers, pre-tokenizers, models, post-processors and decoders, in Python alone."""
