"""One answer out of those of several processes, each of which has what its own devices hold and masks the rest."""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations

import numpy as np

from parity.run import REPLICATED, Answer

Pieces = Mapping[str, list[np.ndarray]]
Copies = Sequence[list[np.ndarray]]  # by process, then by rank


def joined(parts: Sequence[Answer]) -> Answer:
    """Every rank's piece from the processes that hold it. Copies that differ are a failure, as in one process."""
    pieces, in_vjp = _by_quantity([part.pieces for part in parts]), _by_quantity([part.in_vjp for part in parts])
    found = [(q, _violation(q, copies)) for held in (pieces, in_vjp) for q, copies in held.items()]
    failures = {quantity: violation for quantity, violation in found if violation}
    failures |= _failures([part.failures for part in parts])
    return Answer(_measured(pieces, failures), failures, _measured(in_vjp, failures))


def _by_quantity(held: Sequence[Pieces]) -> dict[str, Copies]:
    return {quantity: [x[quantity] for x in held] for quantity in held[0] if all(quantity in x for x in held)}


def _failures(of_processes: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What all say, or who says what."""
    found: dict[str, str] = {}
    for quantity in dict.fromkeys(quantity for failures in of_processes for quantity in failures):
        said = [failures.get(quantity) for failures in of_processes]
        each = [f"in process {index}: {text}" for index, text in enumerate(said) if text is not None]
        found[quantity] = said[0] if said[0] is not None and len(set(said)) == 1 else "\n".join(each)
    return found


def _violation(quantity: str, copies: Copies) -> str | None:
    clashes = [
        f"those of processes {one} and {other} on rank {', '.join(map(str, ranks))}"
        for one, other in combinations(range(len(copies)), 2)
        if (ranks := _where_they_differ(copies[one], copies[other]))
    ]
    if clashes:
        what = "part of it for one rank" if quantity in REPLICATED else "tokens of it"
        return f"{quantity}: devices that hold the same {what} do not agree: {'; '.join(clashes)}"
    if any(np.ma.getmaskarray(piece).any() for piece in _merged(quantity, copies)):
        return f"{quantity}: no process holds all of it"
    return None


def _where_they_differ(one: list[np.ndarray], other: list[np.ndarray]) -> list[int]:
    """The ranks of which both hold an element, and not with the same bits."""
    return [rank for rank, copies in enumerate(zip(one, other, strict=True)) if _differ(*copies)]


def _differ(one: np.ndarray, other: np.ndarray) -> bool:
    both = ~(np.ma.getmaskarray(one) | np.ma.getmaskarray(other))
    return bool((_bits(one) != _bits(other))[both].any())


def _bits(x: np.ndarray) -> np.ndarray:
    return np.ma.getdata(x).view(f"u{x.dtype.itemsize}")


def _measured(pieces: Mapping[str, Copies], failures: Mapping[str, str]) -> dict[str, list[np.ndarray]]:
    merged = {quantity: _merged(quantity, copies) for quantity, copies in pieces.items() if quantity not in failures}
    return {quantity: [np.ma.getdata(piece) for piece in of_ranks] for quantity, of_ranks in merged.items()}


def _merged(quantity: str, copies: Copies) -> list[np.ndarray]:
    """Of each rank what any process holds; of a state, what devices of the rank do not hold from those of others."""
    of_ranks = [reduce(_filled, held) for held in zip(*copies, strict=True)]
    return [reduce(_filled, of_ranks, piece) for piece in of_ranks] if quantity in REPLICATED else of_ranks


def _filled(x: np.ndarray, other: np.ndarray) -> np.ndarray:
    """`x`, and `other` where `x` is masked."""
    here, there = np.ma.getmaskarray(x), np.ma.getmaskarray(other)
    return np.ma.MaskedArray(np.where(here, np.ma.getdata(other), np.ma.getdata(x)), mask=here & there)
