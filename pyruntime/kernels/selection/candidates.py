"""Kernels as candidates: of those that apply to a problem on a device the cheapest runs.

Of near-equal costs (`costs.ERROR`) the fewest dispatches decide, then the shortest text. A plan takes a kernel that it
has already where that makes its runs hardly longer (`Kernels`).

A `Family` is a table of `Candidate`s for one kind of problem. A candidate has a name, says why it does not apply, what
work it is (`kernels.ir.costs` makes microseconds of that), which switches leave it out, and the configuration that its
family lowers. `Family.choose` ranks them; a winner that was measured for that very problem on the device comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pyruntime.kernels.ir.costs import ERROR, Work, microseconds
from pyruntime.kernels.ir.node import device_of, facts_of
from pyruntime.target import Target

__all__ = ["Candidate", "Choice", "Choices", "Considered", "Family", "Kernels", "Noted", "Problem", "forget"]

SHARED = 0.5
"""Part of its cost that a dispatch may take longer with a kernel that the plan has: making one takes 20 to 300 ms."""

SPENT = 0.02
"""Part of their cost that all dispatches together may take longer so."""

SAVES = 200.0
"""Microseconds a run that another kernel has to save on a device that is a processor. Compiling it takes some 200 ms
there, sequentially: as much as a thousand runs save."""

SPENT_ON_PROCESSORS = 0.2
"""`SPENT` where `SAVES` counts."""


class Problem(Protocol):
    """What a family chooses for: hashable, of numbers that hold for a whole plan (`upper` of the sizes it leaves open).

    Attributes:
        key: the problem in a few characters, the same in every release that has the same candidates.
    """

    @property
    def key(self) -> str: ...

    def __hash__(self) -> int: ...


P = TypeVar("P", bound=Problem)
W = TypeVar("W")


@dataclass(frozen=True)
class Candidate(Generic[P, W]):
    """One way to compute a problem.

    Attributes:
        name: unique in the family.
        way: the configuration that the family's lowering takes.
        refuses: why it does not apply to a problem on a device; "" where it does.
        work: its dispatches.
        switches: names, any of which leaves it out.
        text: how long it takes to compile, relative to others of its family; of near-equal costs the least decides.
        kernel: the same for problems that share the text of its kernel; None: for all.
    """

    name: str
    way: W
    refuses: Callable[[P, Target], str]
    work: Callable[[P, Target], tuple[Work, ...]]
    switches: tuple[str, ...] = ()
    text: float = 1.0
    kernel: Callable[[P], str] | None = None

    def text_of(self, problem: P) -> str:
        """The same for problems that share the text of its kernel."""
        return self.kernel(problem) if self.kernel else self.name

    def refused(self, problem: P, target: Target) -> str:
        """Why it does not run; "" where it may."""
        if target.disabled:
            off = next((s for s in self.switches if not target.allows(s)), None)
            if off is not None:
                return f"{off} is switched off"
        return self.refuses(problem, target)


class Considered(NamedTuple):
    """A candidate for a problem: its cost in microseconds and its dispatches, or why it does not apply."""

    name: str
    cost: float | None
    dispatches: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a family chose.

    Attributes:
        family, problem: which table, and `Problem.key`.
        chosen: the candidate's name.
        reason: 'cost'; 'measured', it won a measurement on this device; 'shared', it is nearly the cheapest, and the
            plan has its kernel already.
        others: all that were considered, the cheapest first, those that do not apply last.
    """

    family: str
    problem: str
    chosen: str
    reason: str
    others: tuple[Considered, ...]

    def __str__(self) -> str:
        costs = {c.name: c.cost for c in self.others if c.cost is not None}
        rest = ", ".join(f"{n} {c:.1f}" for n, c in costs.items() if n != self.chosen)
        why = f"{costs[self.chosen]:.1f} µs{'' if self.reason == 'cost' else f', {self.reason}'}"
        return f"{self.family} {self.problem}: {self.chosen} ({why}){f'; {rest}' if rest else ''}"


@dataclass(frozen=True, eq=False)
class Family(Generic[P, W]):
    """The candidates for one kind of problem.

    Attributes:
        name: what it is called where choices are told or kept.
        switches: name, what it is, and what runs without it, of each switch that a candidate has.
    """

    name: str
    candidates: tuple[Candidate[P, W], ...]
    switches: Mapping[str, str]
    _by_name: Mapping[str, Candidate[P, W]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {c.name: c for c in self.candidates})
        if len(self._by_name) != len(self.candidates):
            raise ValueError(f"two candidates of {self.name} have one name")

    def named(self, name: str) -> Candidate[P, W]:
        """Return the candidate of that name."""
        return self._by_name[name]

    def choose(self, problem: P, target: Target) -> Candidate[P, W]:
        """The candidate to run.

        Raises:
            LookupError: none applies; with the reasons.
        """
        choice, choices = self.rank(problem, target), facts_of(target).choices
        return self._by_name[choice.chosen if choices is None else choices.take(self, problem, choice)]

    def rank(self, problem: P, target: Target) -> Choice:
        """Choose the cheapest candidate; returns it with all that were considered."""
        return _ranked(self, problem, device_of(target))


@dataclass(frozen=True, slots=True)
class Noted:
    """A problem that a family chose for, and what it chose where that follows from what a plan had already."""

    family: Family[Any, Any]
    problem: Problem
    chosen: str = field(default="", compare=False)

    def rank(self, target: Target) -> Choice:
        """Return the choice that was made, with all candidates that were considered."""
        choice = self.family.rank(self.problem, target)
        if choice.reason != "cost" or self.chosen not in {c.name for c in choice.others if c.cost is not None}:
            return choice
        return choice if choice.chosen == self.chosen else replace(choice, chosen=self.chosen, reason="shared")


class Kernels:
    """Kernels of a plan: one that it has already is taken where that costs little, so that fewer have to be compiled.

    Who comes first decides, so the dearest problems should. Candidates whose results pass through one dispatch are told
    apart by what follows in it, their user.

    Args:
        before: those of a plan made before for the same device: its kernels are there, too.
        processor: the device is one.
    """

    def __init__(self, before: Kernels | None = None, processor: bool = False) -> None:
        self._processor = processor
        self._had: set[tuple[str, str, str]] = before._had if before else set()
        self._chosen: dict[tuple[str, str, str], str] = {}
        self._cost = self._spent = 0.0

    def preferred(
        self, choice: Choice, user: str, times: int = 1, text_of: Callable[[str], str] = lambda name: name
    ) -> str:
        """The name of the candidate to run; it is there from now on.

        Args:
            times: how many nodes have this problem.
            text_of: the same for candidates, by their names, and problems that share the text of a kernel.
        """
        asked = (choice.family, choice.problem, user)
        if asked not in self._chosen:
            self._chosen[asked] = self._choose(choice, user, times, text_of)
        return self._chosen[asked]

    def _choose(self, choice: Choice, user: str, times: int, text_of: Callable[[str], str]) -> str:
        costed = {c.name: c for c in choice.others if c.cost is not None}
        best = costed[choice.chosen]
        least = best.cost or 0.0
        self._cost += times * least
        budget = SPENT * self._cost - self._spent
        if self._processor:
            budget = max(budget, min(SAVES, SPENT_ON_PROCESSORS * self._cost - self._spent))
        slack = max(ERROR * least, min(SHARED * least, budget / times))

        def kernel(c: Considered) -> tuple[str, str, str]:
            return choice.family, text_of(c.name), "" if c.dispatches > 1 else user

        chosen = best
        if choice.reason == "cost":
            cheap = (c for c in costed.values() if (c.cost or 0.0) - least <= slack and c.dispatches <= best.dispatches)
            chosen = min((c for c in cheap if kernel(c) in self._had), key=lambda c: c.cost or 0.0, default=best)
        self._spent += times * max(0.0, (chosen.cost or 0.0) - least)
        self._had.add(kernel(chosen))
        return chosen.name


@dataclass(slots=True, eq=False)
class Choices:
    """What is chosen for a node.

    Attributes:
        kernels: those of the plan. None: the cheapest ones are chosen.
        user: what is done to results before they are stored.
        times: how many nodes have these problems.
        problems: what was chosen for, each problem once, in order.
    """

    kernels: Kernels | None = None
    user: str = ""
    times: int = 1
    problems: dict[Noted, None] = field(default_factory=dict)

    def take(self, family: Family[P, Any], problem: P, choice: Choice) -> str:
        """The name of the candidate to run for a problem."""
        name = choice.chosen
        if self.kernels is not None:
            name = self.kernels.preferred(choice, self.user, self.times, lambda n: family.named(n).text_of(problem))
        self.problems[Noted(family, problem, name)] = None
        return name


def forget() -> None:
    """Forget what was ranked; it is found again."""
    _ranked.cache_clear()


@lru_cache(maxsize=4096)
def _ranked(family: Family[P, W], problem: P, target: Target) -> Choice:
    found, refused = _considered(family, problem, target)
    if not found:  # switches together leave nothing: they say what is wanted less, not that nothing runs
        found, refused = _considered(family, problem, replace(target, disabled=frozenset()))
    if not found:
        raise LookupError(f"no kernel of {family.name} for {problem.key}: {_told(refused)}")
    found.sort(key=lambda c: c.cost or 0.0)  # stable: of equals the first in the table
    names = {c.name for c in found}
    winner = target.winners.get((family.name, problem.key))
    if winner is not None and winner in names:
        return Choice(family.name, problem.key, winner, "measured", (*found, *refused))
    # Of those that the model cannot tell apart the one of the fewest dispatches, each of which costs the host too.
    near = (c for c in found if (c.cost or 0.0) <= (1 + ERROR) * (found[0].cost or 0.0))
    cheapest = min(near, key=lambda c: (c.dispatches, family.named(c.name).text))
    return Choice(family.name, problem.key, cheapest.name, "cost", (*found, *refused))


def _considered(family: Family[P, W], problem: P, target: Target) -> tuple[list[Considered], list[Considered]]:
    """The candidates that apply, with their costs, and those that do not."""
    found: list[Considered] = []
    refused: list[Considered] = []
    rates = target.speed
    for candidate in family.candidates:
        reason = candidate.refused(problem, target)
        if reason:
            refused.append(Considered(candidate.name, None, reason=reason))
        else:
            works = candidate.work(problem, target)
            cost = sum([microseconds(rates, work) for work in works])
            found.append(Considered(candidate.name, cost, len(works)))
    return found, refused


def _told(refused: Iterable[Considered]) -> str:
    return "; ".join(f"{c.name}: {c.reason}" for c in refused)
