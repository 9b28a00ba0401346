"""Changes of the inputs under which the results change in a known way."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from implementations.contract import Dtype
from oracles.gated_delta_rule import QUANTITIES
from parity.properties.evaluate import evaluate
from parity.properties.examples import Arguments, Example
from parity.properties.judge import Finding, apart, bits_apart, finding
from parity.properties.results import Run, ask
from parity.properties.subjects import Subject
from parity.run import REPLICATED

# Sums of four numbers of so many bits are exact in the dtype.
_BITS: dict[Dtype, int] = {"f64": 48, "f32": 19}

_ODD = ("q", "k", "initial_state", "dfinal_state")
_ODD_RESULTS = ("final_state", "dq", "dk", "dh0")


def superposition(subject: Subject, example: Example) -> Iterator[Finding]:
    """Everything but dv and dh0 is linear in (v, h0), and those two do not depend on them."""
    x = _on_a_grid(example.arguments(subject.dtype), subject.dtype, "v", "initial_state")
    other = Example(example.sizes, seed=example.seed + 1).arguments(subject.dtype)
    other = x | {name: other[name] for name in ("v", "initial_state")}
    other = _on_a_grid(other, subject.dtype, "v", "initial_state")
    both = x | {name: x[name] - 2 * other[name] for name in ("v", "initial_state")}
    one, two, sum_ = (_ask(subject, example, arguments) for arguments in (x, other, both))
    for q in QUANTITIES:
        if q in ("dv", "dh0"):
            yield finding(subject, q, (q,), apart((1.0, sum_[q]), (-1.0, one[q])))
        else:
            yield finding(subject, q, (q,), apart((1.0, sum_[q]), (-1.0, one[q]), (2.0, two[q])))


def flip(subject: Subject, example: Example) -> Iterator[Finding]:
    """-(q, k, h0, dht) flips ht, dq, dk and dh0 and leaves the rest: rounding is symmetric, so bit for bit."""
    x = example.arguments(subject.dtype)
    run, flipped = (_results(subject, example, a) for a in (x, x | {name: -x[name] for name in _ODD}))
    for q in QUANTITIES:
        sign = -1 if q in _ODD_RESULTS else 1
        yield finding(subject, q, (q,), bits_apart(sign * flipped[q], run[q]))


def rescaled_keys(subject: Subject, example: Example) -> Iterator[Finding]:
    """(k, beta, v) -> (2 k, beta / 4, 2 v) changes no output."""
    x = example.arguments(subject.dtype)
    run = _ask(subject, example, x)
    scaled = _ask(subject, example, x | {"k": 2 * x["k"], "beta": x["beta"] / 4, "v": 2 * x["v"]})
    factors = {"dk": 2.0, "dbeta": 0.25, "dv": 2.0}
    for q in QUANTITIES:
        yield finding(subject, q, (q,), apart((factors.get(q, 1.0), scaled[q]), (-1.0, run[q])))


def rotation(subject: Subject, example: Example) -> Iterator[Finding]:
    """Rotating key space rotates what has a key axis and leaves the rest."""
    x = _on_a_grid(example.arguments(subject.dtype), subject.dtype, "q", "k", axis=-1)
    x = _on_a_grid(x, subject.dtype, "initial_state", "dfinal_state", axis=-2)
    R = rotation_matrix(example.sizes.K)
    turned = x | {name: x[name] @ R.T.astype(x[name].dtype) for name in ("q", "k")}
    turned |= {name: R.astype(x[name].dtype) @ x[name] for name in ("initial_state", "dfinal_state")}
    run, found = _ask(subject, example, x), _ask(subject, example, turned)
    states = (*found["dh0"].got.shape[:3], example.sizes.K, example.sizes.V)
    for q in QUANTITIES:
        got = run[q].got
        if q in ("dq", "dk"):
            got = got @ R.T
        elif q in ("final_state", "dh0"):
            got = (R @ got.reshape(states)).reshape(got.shape)
        yield finding(subject, q, (q,), apart((1.0, replace(run[q], got=got)), (-1.0, found[q])))


def rotation_matrix(size: int) -> np.ndarray:
    """An orthogonal matrix of entries 0, 1/2 and 1 that is not symmetric: four axes mixed, the others turned.

    With at most four terms a row, it is applied without a rounding error to numbers on a grid.
    """
    R = np.roll(np.eye(size), 1, axis=0)
    R[0] = -R[0]
    if size >= 4:
        R[:, :4] = R[:, :4] @ np.array([[1, 1, 1, 1], [1, -1, -1, 1], [-1, -1, 1, 1], [1, -1, 1, -1]]) / 2
    return R


def independence(subject: Subject, example: Example) -> Iterator[Finding]:
    """Nothing of the last row is seen by another row, nor of the last key head by another head: bit for bit."""
    x = example.arguments(subject.dtype)
    other = replace(example, seed=example.seed + 1).arguments(subject.dtype)
    run = _results(subject, example, x)
    for what, kept in (("rows", _but_last_row), ("heads", partial(_but_last_key_head, key_heads=example.sizes.Hk))):
        edited = {name: a.copy() for name, a in other.items()}
        for name, a in edited.items():
            kept(name, a)[...] = kept(name, x[name])
        found = _results(subject, example, edited)
        for q in QUANTITIES:
            yield finding(subject, f"{q} of other {what}", (q,), bits_apart(kept(q, found[q]), kept(q, run[q])))


def _but_last_row(name: str, a: np.ndarray) -> np.ndarray:
    return a[:-1]


def _but_last_key_head(name: str, a: np.ndarray, *, key_heads: int) -> np.ndarray:
    """Without the last key head and the value heads that read it."""
    axis = 1 if name in REPLICATED else 2
    count = a.shape[axis] - a.shape[axis] // key_heads
    return a[:, :count] if axis == 1 else a[:, :, :count]


def _on_a_grid(x: Arguments, dtype: Dtype, *names: str, axis: int | None = None) -> Arguments:
    """`names` rounded to `_BITS` bits of the largest element (along `axis`)."""
    rounded = {}
    for name in names:
        a = x[name].astype(np.float64)
        exponent = np.frexp(np.max(np.abs(a), axis=axis, keepdims=True))[1]
        rounded[name] = np.ldexp(np.rint(np.ldexp(a, _BITS[dtype] - exponent)), exponent - _BITS[dtype])
    return x | {name: a.astype(x[name].dtype) for name, a in rounded.items()}


def _ask(subject: Subject, example: Example, x: Arguments) -> Run:
    return ask(subject, x, chunk_size=example.sizes.chunk_size, ranks=example.sizes.ranks)


def _results(subject: Subject, example: Example, x: Arguments) -> Arguments:
    return evaluate(subject, x, chunk_size=example.sizes.chunk_size, ranks=example.sizes.ranks)
