"""Execution of plans on a device: memory, constants, recordings, runs."""
