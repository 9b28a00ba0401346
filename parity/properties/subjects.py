"""What the properties are asked of: every implementation in every wide dtype that it claims, and the float64 oracle."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

import implementations
from implementations.contract import FEATURES, Dtype, Implementation
from oracles.gated_delta_rule import float64

DRAWN = "drawn"  # in the place of a regime

# bf16 proves precision alone, which no identity does better than the gate.
DTYPES: tuple[Dtype, ...] = ("f64", "f32")


@dataclass(frozen=True)
class Subject:
    implementation: Implementation
    dtype: Dtype

    @property
    def name(self) -> str:
        return f"{self.implementation.name}-{self.dtype}"

    @property
    def arithmetic(self) -> Dtype:
        """What the implementation claims to compute in."""
        return cast(Dtype, self.implementation.arithmetic[self.dtype])

    @property
    def compiles(self) -> bool:
        """Whether other sizes cost a compilation."""
        return self.implementation.traceable

    @property
    def context_parallel(self) -> bool:
        return self.implementation.context_parallel

    @property
    def not_claimed(self) -> list[str]:
        """The features that examples are drawn with and that the implementation leaves out."""
        return sorted(FEATURES - frozenset(self.implementation.supports))


def _forward(*inputs: Any, scale: float | None, chunk_size: int) -> tuple[np.ndarray, np.ndarray]:
    return float64.forward(*inputs, scale=scale)


def _adjoint(*inputs_and_cotangents: Any, scale: float | None, chunk_size: int) -> tuple[np.ndarray, ...]:
    return float64.adjoint(*inputs_and_cotangents, scale=scale)


ORACLE = Implementation("float64_oracle", _forward, vjp=_adjoint, traceable=False, arithmetic={"f64": "f64"})

SUBJECTS = tuple(Subject(x, dtype) for x in (ORACLE, *implementations.ALL) for dtype in DTYPES if dtype in x.arithmetic)
CONTEXT_PARALLEL = tuple(subject for subject in SUBJECTS if subject.implementation.context_parallel)


def each(subjects: Sequence[Any]) -> pytest.MarkDecorator:
    """Ids in the form of the gate's, so that what one compiled program serves runs in one worker."""
    return pytest.mark.parametrize("subject", subjects, ids=[f"{subject.name}-{DRAWN}-small" for subject in subjects])


each_subject = each(SUBJECTS)
each_context_parallel_subject = each(CONTEXT_PARALLEL)
