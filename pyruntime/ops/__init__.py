"""Operators: one, or one inseparable family, a file. `base` says what an operator is, `registry` finds them."""
