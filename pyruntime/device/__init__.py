"""Devices that plans run on: the `Device` protocol, the browser's GPU, desktop GPUs, and a recording device for tests.
"""
