"""Inputs that depend on one another: atoms of a protein and their edges, atoms of a reaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tools.zoo.check import Feeds
from tools.zoo.trained.recipes.context import Context

__all__ = ["RECIPES", "protein", "reaction"]


def protein(context: Context) -> Feeds:
    """A chain of `r` residues with eight atoms each, and edges to the twelve nearest atoms; for CAUSTIC."""
    residues, random = context.sizes["r"], context.random
    atoms = residues * 8
    steps = random.standard_normal((residues, 3))
    centres = np.cumsum(3.8 * steps / np.linalg.norm(steps, axis=1, keepdims=True), axis=0)
    pos = np.repeat(centres, 8, axis=0) + random.normal(0, 1.2, (atoms, 3))
    far = np.linalg.norm(pos[:, None] - pos[None], axis=2)
    np.fill_diagonal(far, np.inf)
    sources = np.argsort(far, axis=1)[:, :12]
    edges = np.stack([sources.ravel(), np.repeat(np.arange(atoms), 12)])
    order = random.permutation(edges.shape[1])  # unordered, like the results of a cell-list search
    edges = edges[:, order]
    residue = edges // 8
    kinds = random.integers(0, 20, residues)
    normals = random.standard_normal((atoms, 3))
    floats = {
        "bfactor": random.uniform(0, 1, atoms),
        "edge_dist": far[edges[0], edges[1]],
        "same_residue": np.where(residue[0] == residue[1], 1.0, 0.0),
        "residue_geometry": random.uniform(-1, 1, (residues, 52)),
        "target_environment": random.uniform(0, 1, (residues, 6, 15)),
        "temperature_feature": np.full((residues, 1), 0.1),
        "target_atom_rsasa": random.uniform(0, 1, (residues, 6)),
        "pos": pos,
        "node_normal": normals / np.linalg.norm(normals, axis=1, keepdims=True),
        "is_hbond": np.where(random.uniform(size=edges.shape[1]) < 0.05, 1.0, 0.0),
        "hb_cos": random.uniform(-1, 1, edges.shape[1]),
    }
    made = {name: x.astype(np.float32) for name, x in floats.items()}
    return made | {
        "element": random.integers(0, 7, atoms),
        "amino_acid": np.repeat(kinds, 8),
        "atom_role": np.tile(np.arange(8), residues),
        "edge_index": edges.astype(np.int64),
        "seq_sep": np.clip(residue[0] - residue[1] + 16, 0, 32),
        "target_indices": np.arange(residues)[:, None] * 8 + np.arange(6),
        "target_mask": random.uniform(size=(residues, 6)) < 0.9,
        "residue_types": kinds,
    }


def reaction(context: Context) -> Feeds:
    """The `a` atoms of a reaction, in chains, with their distances in bonds; for Chython's RXNMap."""
    count, random = context.sizes["a"], context.random
    place = np.arange(count)
    distances = np.minimum(np.abs(place[:, None] - place[None]) + 2, 12)
    half = count // 2
    distances[:half, half:] = distances[half:, :half] = 1  # reactants and products are not bound to one another
    return {
        "atoms": random.choice([8, 9, 10, 18], (1, count)).astype(np.int64),
        "neighbors": random.integers(3, 7, (1, count)),
        "distances": distances[None].astype(np.int64),
        "roles": np.where(place < half, 2, 3)[None].astype(np.int64),
    }


RECIPES: Mapping[str, Callable[[Context], Feeds]] = {"protein": protein, "reaction": reaction}
