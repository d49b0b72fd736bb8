"""Devices: the protocol that plans run on, the browser's GPU, and one for tests that only records."""
