"""Defences taken away one by one, in a copy of the project: the tests that guard them must fail."""
