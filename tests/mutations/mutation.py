"""One defence, how it is taken away, and which tests have to notice."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mutation"]


@dataclass(frozen=True)
class Mutation:
    """A defence without which something that SECURITY.md promises does not hold.

    Attributes:
        defence: what is gone.
        path: the file it is in.
        old, new: its text there, which occurs once, and what is there instead.
        tests: pytest's names of those that have to fail, each of them.
    """

    defence: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def in_browser(self) -> bool:
        """True where a site has to be built for its tests."""
        return any(test.startswith("e2e/") for test in self.tests)

    @property
    def files(self) -> set[str]:
        """The mutated file, and those of the tests."""
        return {self.path, *(test.partition("::")[0] for test in self.tests)}
