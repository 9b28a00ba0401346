"""A sequence in two segments: state passing, and tokens that do nothing."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from parity.properties.examples import Arguments, Example
from parity.properties.judge import Finding, apart, bits_apart, finding
from parity.properties.results import Result, Run, ask
from parity.properties.subjects import Subject
from parity.run import REPLICATED

OF_TOKENS = ("o", "dq", "dk", "dv", "dg", "dbeta")
OF_STATES = ("final_state", "dh0")


def state_passing(subject: Subject, example: Example) -> Iterator[Finding]:
    """T1 tokens and then T2 from where they ended are T1 + T2, and so are the gradients, from the end to the start."""
    x, cut = example.arguments(subject.dtype), example.sizes.cut
    first, last = first_tokens(x, cut), last_tokens(x, cut)
    whole = _ask(subject, example, x)
    later = _ask(subject, example, last | {"initial_state": of_state(x, _ask(subject, example, first)["final_state"])})
    earlier = _ask(subject, example, first | {"dfinal_state": of_state(x, later["dh0"])})
    joined = {q: np.concatenate([earlier[q].got, later[q].got], axis=1) for q in OF_TOKENS}
    joined |= {"final_state": later["final_state"].got, "dh0": earlier["dh0"].got}
    for q, got in joined.items():
        yield finding(subject, q, (q,), apart((1.0, replace(whole[q], got=got)), (-1.0, whole[q])))


def padding_behind(subject: Subject, example: Example) -> Iterator[Finding]:
    """Tokens with g = 0 and q = k = v = 0 behind the others change nothing."""
    return _padding(subject, example, slice(example.sizes.cut, None))


def padding_in_front(subject: Subject, example: Example) -> Iterator[Finding]:
    """Nor do they in front of them."""
    return _padding(subject, example, slice(None, example.sizes.T - example.sizes.cut))


def _padding(subject: Subject, example: Example, padded: slice) -> Iterator[Finding]:
    """The tokens that are left are as many as the first segment has, so that no further program is needed."""
    x, sizes = example.arguments(subject.dtype), example.sizes
    x = {name: a.copy() for name, a in x.items()}
    for name in ("q", "k", "v", "g"):
        x[name][:, padded] = 0
    is_real = np.ones(sizes.T, dtype=bool)
    is_real[padded] = False
    alone = {name: a if name in REPLICATED else a[:, is_real] for name, a in x.items()}
    found, wanted = _ask(subject, example, x), _ask(subject, example, alone)
    for q in OF_TOKENS:
        mine = replace(wanted[q], got=found[q].got[:, is_real])
        yield finding(subject, f"{q} of the other tokens", (q,), apart((1.0, mine), (-1.0, wanted[q])))
    for q in OF_STATES:
        yield finding(subject, q, (q,), apart((1.0, found[q]), (-1.0, wanted[q])))
    for q in ("o", "dv", "dbeta"):
        padding = found[q].got[:, ~is_real]
        yield finding(subject, f"{q} of the padding", (q,), bits_apart(padding, np.zeros_like(padding)))


def first_tokens(x: Arguments, count: int) -> Arguments:
    return {name: a if name in REPLICATED else a[:, :count] for name, a in x.items()}


def last_tokens(x: Arguments, start: int) -> Arguments:
    return {name: a if name in REPLICATED else a[:, start:] for name, a in x.items()}


def of_state(x: Arguments, result: Result) -> np.ndarray:
    """A state that came out as one that goes in."""
    like = x["initial_state"]
    return result.got.reshape(like.shape).astype(like.dtype)


def _ask(subject: Subject, example: Example, x: Arguments) -> Run:
    return ask(subject, x, chunk_size=example.sizes.chunk_size, ranks=example.sizes.ranks)
