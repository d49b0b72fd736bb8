"""Models that must be refused: `corpus.cases()` has all of them, each with the exception it must raise."""
