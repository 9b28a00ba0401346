"""One run of a subject: what came, beside what the float64 oracle says of the same arguments."""

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from oracles.gated_delta_rule import QUANTITIES
from oracles.reference import conditioned
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF, dtype_of
from parity.properties.evaluate import evaluate
from parity.properties.examples import Arguments
from parity.properties.subjects import Subject
from parity.truth import per_token
from parity.unit import block_rms


@dataclass(frozen=True)
class Result:
    """One quantity of one run: `got` beside the oracle's `want` and `kappa`, all `[B, T, H, size]`."""

    got: np.ndarray
    want: np.ndarray
    kappa: np.ndarray
    u_c: float
    u_out: float
    floor: float

    @property
    def unit(self) -> np.ndarray:
        """What one unit is, `[B, blocks, H]`; 0 where the claim is equality."""
        kappa, want = block_rms(self.kappa), block_rms(self.want)
        return np.where((kappa > 0) | (want > 0), self.u_c * kappa + self.u_out * want + self.floor, 0.0)

    def tokens(self, start: int, stop: int | None = None) -> "Result":
        return replace(self, **{name: getattr(self, name)[:, start:stop] for name in ("got", "want", "kappa")})


Run = dict[str, Result]


def ask(subject: Subject, arguments: Arguments, *, chunk_size: int, ranks: int) -> Run:
    """Run the subject, and the oracle for what its results may be off."""
    got = evaluate(subject, arguments, chunk_size=chunk_size, ranks=ranks)
    want, kappa = _truth(_Given({name: x.astype(np.float64) for name, x in arguments.items()}, chunk_size))
    return {
        q: Result(
            per_token(q, got[q].astype(np.float64)),
            per_token(q, want[q]),
            per_token(q, kappa[q]),
            u_c=UNIT_ROUNDOFF[subject.arithmetic],
            u_out=UNIT_ROUNDOFF[dtype_of(q, subject.dtype)],
            floor=SMALLEST_NORMAL[subject.arithmetic],
        )
        for q in QUANTITIES
    }


class _Given:
    """Arguments of the oracle, equal where their bits are."""

    def __init__(self, arguments: Arguments, chunk_size: int) -> None:
        self.arguments, self.chunk_size = arguments, chunk_size
        parts = [f"{name}{x.shape}".encode() + x.tobytes() for name, x in arguments.items()]
        self.digest = hashlib.sha256(b"".join(parts) + str(chunk_size).encode()).hexdigest()

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Given) and other.digest == self.digest


@lru_cache(maxsize=256)
def _truth(given: _Given) -> tuple[Arguments, Arguments]:
    return conditioned(given.arguments, scale=None, chunk_size=given.chunk_size, name=given.digest)
