"""Hold a subject to a property: worst cases first, then what hypothesis draws, steered towards large units."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implementations.contract import Dtype
from parity.properties import worst
from parity.properties.examples import Example, examples
from parity.properties.judge import Finding
from parity.properties.profiles import Profile
from parity.properties.sizes import Sizes, any_sizes, pool

Property = Callable[[Any, Example], Iterator[Finding]]


class Violated(AssertionError):
    """A property does not hold; the message has the example in one line, and how to run it again."""


@dataclass
class Session:
    """Where a property is held: the `profile`, the seed that the pool of sizes is a function of, the test's id."""

    profile: Profile
    seed: str | None
    test: str
    tell: Callable[[str], None]
    worst_cases: Path = worst.PATH
    worst: tuple[Finding, Example] | None = None  # seen so far; None where nothing was off at all

    def hold(self, prop: Property, subject: Any) -> None:
        """Raises Violated, and in a hunt keeps the worst that was seen."""
        if subject.not_claimed:
            pytest.skip(
                f"{subject.name} does not claim {', '.join(subject.not_claimed)}, which examples are drawn with"
            )
        recorded = None
        try:
            for case in worst.replayed(prop.__name__, subject.name, self.worst_cases):
                self.check(prop, subject, worst.parse(case.example))
            recorded = self.worst
            self._draw(prop, subject)
        finally:
            if self.profile.keeps_worst and self.worst is not None and self.worst is not recorded:
                self._keep(prop, subject, *self.worst)

    def check(self, prop: Property, subject: Any, example: Example) -> float:
        """Hold `subject` to `prop` on one example: the units of the finding closest to its limit. Raises Violated."""
        found = max(prop(subject, example), key=lambda finding: finding.units / finding.limit)
        if found.units > (0.0 if self.worst is None else self.worst[0].units):
            self.worst = found, example
        if not found.units <= found.limit:
            line = example.line()
            raise Violated(
                f"{prop.__name__} does not hold for {subject.name}: {found.what} is off by {found.units:.3g} units "
                f"where the limit is {found.limit:g}\nexample: {line}\n"
                f"run it again: python -m pytest -n0 '{self.test}' --example '{line}'"
            )
        return found.units

    def _draw(self, prop: Property, subject: Any) -> None:
        @settings(settings.get_profile(self.profile.name), max_examples=self.profile.examples)
        @given(examples(self._sizes(subject)))
        def holds(example: Example) -> None:
            hypothesis.target(min(self.check(prop, subject, example), 1e300))

        holds()

    def _sizes(self, subject: Any) -> st.SearchStrategy[Sizes]:
        """Any sizes where they cost nothing; else a pool that all properties of the subject share."""
        if not subject.compiles:
            return any_sizes(context_parallel=subject.context_parallel)
        name = f"{self.profile.name}/{self.seed}"
        return st.sampled_from(pool(name, self._count(subject.dtype), context_parallel=subject.context_parallel))

    def _count(self, dtype: Dtype) -> int:
        return self.profile.sizes if dtype == "f64" else self.profile.sizes // 2

    def _keep(self, prop: Property, subject: Any, found: Finding, example: Example) -> None:
        case = worst.Worst(
            prop.__name__, subject.name, found.what, found.units, found.units > found.limit, example.line()
        )
        worst.keep(case, self.worst_cases)
        self.tell(f"{case.name}: {case.units:.3g} units, {case.what}")
