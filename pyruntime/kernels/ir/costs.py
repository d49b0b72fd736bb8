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

from typing import NamedTuple

from pyruntime.target import Rates

__all__ = ["ERROR", "Work", "microseconds"]

EXPONENT = 1.7

ERROR = 0.03
"""Costs that differ by this part of them are not told apart."""


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
    """Return the estimated time of a dispatch in microseconds."""
    groups, threads, flops, nbytes, efficiency, steps, merges, loads, stops = work
    share = -(-groups // rates.units)
    rounds = -(-share // max(1, rates.resident // threads))
    waits = steps * rates.step + merges * rates.merge + loads * rates.load
    stops = stops if stops >= 0 else 2 * steps + merges
    busy = flops * rates.units / (rates.flops * efficiency) + stops * threads * rates.switch
    terms = (rounds * waits) ** EXPONENT, (share * busy) ** EXPONENT, (nbytes / rates.bandwidth) ** EXPONENT
    return float(rates.dispatch + sum(terms) ** (1 / EXPONENT))
