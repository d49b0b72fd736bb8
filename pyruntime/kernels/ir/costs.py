"""What a kernel costs on a device, in microseconds: a small model, good enough to rank the kernels of one problem.

    T = D + (L^p + A^p + B^p)^(1/p),  p = 1.7

D is the price of a dispatch, L what an invocation waits for in a row, A arithmetic and B bytes at the device's rates;
the largest of the three tells, near-equal ones hinder each other. Workgroups are distributed over units: a unit that
gets one more than others holds all up, so L and A count the workgroups of the busiest.

    L = rounds * (steps * rates.step + merges * rates.merge + loads * rates.load)
    A = share * (flops / (rates.flops / units * efficiency) + stops * threads * rates.switch)
    B = nbytes / rates.bandwidth

The numbers of `H200` are fitted to 1,932 measurements of tiled products, 18 tilings of 114 shapes
(`bench/results/tuning/`): root mean square of the error 9 %, which is mostly that of the measurements; the cheapest by
the model takes 4 % more than the best measured one on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ERROR", "H200", "SWIFTSHADER", "Rates", "Work", "microseconds"]

EXPONENT = 1.7

ERROR = 0.03
"""Costs that differ by this part of them are not told apart."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What of a device tells kernels apart. Microseconds, float32 operations and bytes a microsecond.

    Attributes:
        units: multiprocessors, or cores: workgroups that run at once without sharing anything.
        resident: invocations a unit holds at once.
        flops, bandwidth: of the whole device, at best.
        dispatch: what a dispatch costs before it does anything, with the barrier after the previous one.
        step: a tile from memory into workgroup memory, with its barriers.
        merge: two shares of a workgroup become one, with a barrier.
        load: a load that has to wait for the one before.
        direct: part of `flops` that is reached where every operand comes from memory and its caches.
        switch: an invocation stops at a barrier and goes on, where invocations are not threads: on a processor.
    """

    units: int
    resident: int
    flops: float
    bandwidth: float
    dispatch: float
    step: float
    merge: float
    load: float
    direct: float
    switch: float = 0.0


H200 = Rates(
    units=132,
    resident=545,
    flops=55.2e6,
    bandwidth=3.66e6,
    dispatch=3.19,
    step=0.308,
    merge=0.765,
    load=0.2,
    direct=0.2,
)
"""NVIDIA H200 in Chromium over Vulkan, 2026-11-23: the GPU that is assumed where none was measured."""

SWIFTSHADER = Rates(
    units=2,
    resident=64,
    flops=2600.0,
    bandwidth=4000.0,
    dispatch=25.0,
    step=0.0,
    merge=0.0,
    load=0.0,
    direct=1.0,
    switch=0.8,
)
"""SwiftShader on two cores: a workgroup runs on one core, a barrier stops and wakes every invocation (2026-11-24)."""


class Work(NamedTuple):
    """A dispatch, for its cost.

    Attributes:
        groups, threads: workgroups, and invocations of each.
        flops: operations of a workgroup, those on padding too.
        nbytes: read and written by all, each once where caches serve the rest.
        efficiency: part of the device's operations that the kernel reaches when nothing else holds it up.
        steps: times a workgroup fills its workgroup memory.
        merges: times shares of a workgroup become half as many.
        loads: loads of an invocation that wait for one another.
        stops: barriers; where not stated two a step, and one a merge.
    """

    groups: float
    threads: int
    flops: float
    nbytes: float
    efficiency: float = 1.0
    steps: float = 0.0
    merges: float = 0.0
    loads: float = 0.0
    stops: float = -1.0


def microseconds(rates: Rates, work: Work) -> float:
    """What a dispatch takes."""
    groups, threads, flops, nbytes, efficiency, steps, merges, loads, stops = work
    share = -(-groups // rates.units)
    rounds = -(-share // max(1, rates.resident // threads))
    waits = steps * rates.step + merges * rates.merge + loads * rates.load
    stops = stops if stops >= 0 else 2 * steps + merges
    busy = flops * rates.units / (rates.flops * efficiency) + stops * threads * rates.switch
    terms = (rounds * waits) ** EXPONENT, (share * busy) ** EXPONENT, (nbytes / rates.bandwidth) ** EXPONENT
    return float(rates.dispatch + sum(terms) ** (1 / EXPONENT))
