"""What a token may depend on. One program runs on both sides: what may not change must not change a bit."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from parity.properties.evaluate import evaluate
from parity.properties.examples import Arguments, Example
from parity.properties.judge import Finding, bits_apart, finding
from parity.properties.subjects import Subject

_SEQUENCES = ("q", "k", "v", "g", "beta")
_EDITS = 3


def outputs_do_not_see_later_tokens(subject: Subject, example: Example) -> Iterator[Finding]:
    """Other tokens from t on leave o and dq before t as they were, bit for bit: inside a chunk and across ranks."""
    x, other = example.arguments(subject.dtype), _otherwise(example, subject)
    run = _results(subject, example, x)
    for t in _tokens(example):
        edited = x | {name: np.concatenate([x[name][:, :t], other[name][:, t:]], axis=1) for name in _SEQUENCES}
        found = _results(subject, example, edited)
        for q in ("o", "dq"):
            yield finding(subject, f"{q} before token {t}", (q,), bits_apart(found[q][:, :t], run[q][:, :t]))


def gradients_do_not_see_earlier_cotangents(subject: Subject, example: Example) -> Iterator[Finding]:
    """Other cotangents before t leave the gradients of the tokens from t on as they were, bit for bit."""
    x, other = example.arguments(subject.dtype), _otherwise(example, subject)
    run = _results(subject, example, x)
    for t in _tokens(example):
        found = _results(subject, example, x | {"do": np.concatenate([other["do"][:, :t], x["do"][:, t:]], axis=1)})
        for q in ("dq", "dk", "dv", "dg", "dbeta"):
            yield finding(subject, f"{q} from token {t} on", (q,), bits_apart(found[q][:, t:], run[q][:, t:]))


def _otherwise(example: Example, subject: Subject) -> Arguments:
    return replace(example, seed=example.seed + 1).arguments(subject.dtype)


def _tokens(example: Example) -> list[int]:
    return sorted(set((1 + example.stream.integers("edited token", example.sizes.T - 1, _EDITS)).tolist()))


def _results(subject: Subject, example: Example, x: Arguments) -> Arguments:
    return evaluate(subject, x, chunk_size=example.sizes.chunk_size, ranks=example.sizes.ranks)
