"""Trains the small language model of the page, `models/austen/`; see `tools.writer.__main__`."""
