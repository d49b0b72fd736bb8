"""Training of the page's small language model, `models/austen/`; see `tools.writer.__main__`."""
