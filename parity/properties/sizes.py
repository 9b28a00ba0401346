"""Sizes of an example: all that decides a compilation. Drawn freely, or from a pool where each costs a compilation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from oracles.stream import Stream
from parity.shapes import Shape

MOST_RANKS = 8


@dataclass(frozen=True)
class Sizes:
    """`group` value heads read one key head; `T` tokens can be cut after `cut` of them; `ranks` is 1 on one device.

    T, cut and T - cut are multiples of `ranks`; of a context-parallel example T is a multiple of eight.
    """

    B: int
    T: int
    Hk: int
    group: int
    K: int
    V: int
    chunk_size: int
    other_chunk_size: int
    cut: int
    ranks: int

    def __post_init__(self) -> None:
        if min(vars(self).values()) < 1:
            raise ValueError(f"every size must be positive; got {self}")
        if self.cut >= self.T or self.T % self.ranks or self.cut % self.ranks:
            raise ValueError(f"cut must be below T, and both multiples of ranks; got {self}")

    @property
    def weight(self) -> int:
        """How much there is of it: small examples are read more easily."""
        return self.B * self.T * self.Hk * self.group * (self.K + self.V)


def shape_of(B: int, T: int, Hk: int, Hv: int, K: int, V: int, chunk_size: int) -> Shape:
    return Shape("drawn", B=B, T=T, Hk=Hk, Hv=Hv, K=K, V=V, chunk_size=chunk_size)


def _made_of(integer: Callable[[str, int, int], int], context_parallel: bool) -> Sizes:
    """Sizes from `integer(what, least, most)`."""
    ranks = 2 ** integer("ranks", 1, 2) if context_parallel else 1
    T = MOST_RANKS * integer("tokens", 1, 3) if context_parallel else integer("tokens", 2, 24)
    return Sizes(
        B=integer("B", 1, 3),
        T=T,
        Hk=integer("Hk", 1, 2),
        group=integer("group", 1, 3),
        K=integer("K", 1, 6),
        V=integer("V", 1, 6),
        chunk_size=integer("chunk_size", 1, 7),
        other_chunk_size=integer("other_chunk_size", 1, 7),
        cut=ranks * integer("cut", 1, T // ranks - 1),
        ranks=ranks,
    )


@st.composite
def any_sizes(draw: Any, *, context_parallel: bool) -> Sizes:
    return _made_of(lambda _, least, most: draw(st.integers(least, most)), context_parallel)


def pool(name: str, count: int, *, context_parallel: bool) -> list[Sizes]:
    """`count` sizes that are a function of `name`, the smallest first."""

    def one(i: int) -> Sizes:
        stream = Stream(f"sizes/{name}/{i}")
        return _made_of(
            lambda what, least, most: least + int(stream.integers(what, most - least + 1)), context_parallel
        )

    return sorted((one(i) for i in range(count)), key=lambda sizes: sizes.weight)
