"""Property tests here share a machine with others: no deadline for an example."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
