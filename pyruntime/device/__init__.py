"""Devices that run plans: the `Device` protocol, GPUs of browsers and desktops, and a recording device for tests."""
