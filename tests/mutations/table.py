"""What is taken away, and which tests have to notice."""

from __future__ import annotations

from tests.mutations.limits import FILE_MUTATIONS, LIMIT_MUTATIONS
from tests.mutations.mutation import Mutation
from tests.mutations.overlaps import OVERLAP_MUTATIONS
from tests.mutations.releases import RELEASE_MUTATIONS
from tests.mutations.runs import DEVICE_MUTATIONS, RUN_MUTATIONS

__all__ = ["MUTATIONS", "Mutation"]

MUTATIONS = LIMIT_MUTATIONS + FILE_MUTATIONS + DEVICE_MUTATIONS + RUN_MUTATIONS + OVERLAP_MUTATIONS + RELEASE_MUTATIONS
