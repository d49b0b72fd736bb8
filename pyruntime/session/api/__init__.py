"""The classes and functions that callers use."""
