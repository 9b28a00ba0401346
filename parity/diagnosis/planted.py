"""What the faults of the catalogue answer, at the least cost, for there are many and each is a program of its own.

A fault that is a wrap is run around one compiled program, which serves all of them. Edits are compiled several in one
program, with as little optimisation as there is: what they have in common is compiled once, and it costs a quarter.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

from implementations.chunked import CHUNKED
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.contract import Implementation
from oracles.gated_delta_rule import OUTPUTS, QUANTITIES
from parity.compilation import jit_for_few_runs
from parity.diagnosis.distance import Pieces
from parity.faults.fault import Fault
from parity.layouts import Layout, over
from parity.meshes import keywords as keywords_of_mesh
from parity.meshes import per_rank, place
from parity.problem import Problem
from parity.run import REPLICATED, placed_documents

TOGETHER = 8

Answers = dict[Fault, dict[str, Pieces]]


def answers(faults: Sequence[Fault], problem: Problem, ranks: int, names: tuple[str, ...]) -> Answers:
    """`OUTPUTS` or `GRADIENTS`, whichever `names` is, of each rank and fault.

    A fault that cannot be planted there, or that raises on a problem that it was not made for, is left out. What can be
    planted in `sequential` alone is run on one device, and its tokens are split afterwards.
    """
    found: Answers = {}
    with jax.enable_x64(problem.dtype == "f64"):
        for fault in (fault for fault in faults if fault.wrap):
            try:
                found[fault] = _of_wrap(fault, problem, ranks, names)
            except Exception:
                continue
        edits = [(fault, fault.planted(ranks > 1) or fault.planted(False)) for fault in faults if fault.edits]
        for over_ranks in (True, False):
            fit = [(fault, planted) for fault, planted in edits if planted and planted.context_parallel == over_ranks]
            for start in range(0, len(fit), TOGETHER):
                found |= _of_edits(fit[start : start + TOGETHER], problem, ranks, names)
    return found


def _of_wrap(fault: Fault, problem: Problem, ranks: int, names: tuple[str, ...]) -> dict[str, Pieces]:
    """Around `chunked` or `two_phase`, which it does not trace: `call` and `vjp` are one compiled program each."""
    assert fault.wrap is not None
    right = TWO_PHASE if ranks > 1 else CHUNKED

    def compiled(names: tuple[str, ...]) -> Callable[..., Any]:
        def call(*arguments: jax.Array, segment_ids: Any = None, **keywords: Any) -> tuple[jax.Array, ...]:
            documents = {} if segment_ids is None else {"segment_ids": segment_ids}
            results = _compiled(right, names, *keywords.items())(*arguments, **documents)
            return tuple(jax.numpy.asarray(np.asarray(x)) for x in results)  # on one device, where the fault goes on

        return call

    around = fault.wrap(
        Implementation(
            right.name, compiled(OUTPUTS), vjp=compiled(QUANTITIES[2:]), traceable=False, context_parallel=ranks > 1
        )
    )
    asked = _asked(around, names, _keywords(problem, over(ranks) if ranks > 1 else None))
    returned = asked(*map(jax.numpy.asarray, problem.arguments.values()))
    return {name: _split(np.asarray(x), ranks, name) for name, x in zip(names, returned, strict=True)}


def _of_edits(
    planted: Sequence[tuple[Fault, Implementation]], problem: Problem, ranks: int, names: tuple[str, ...]
) -> Answers:
    """All of them in one program: all over the ranks, or all on one device."""
    over_ranks = planted[0][1].context_parallel
    layout = over(ranks) if over_ranks else None
    keywords = _keywords(problem, layout)
    programs = [_asked(implementation, names, keywords) for _, implementation in planted]

    def together(*arguments: jax.Array) -> list[Any]:
        return [_unless_it_raises(program, arguments) for program in programs]

    arguments = [place(x, layout, over_tokens=n not in REPLICATED) for n, x in problem.arguments.items()]
    found: Answers = {}
    for (fault, _), returned in zip(planted, jit_for_few_runs(together)(*arguments), strict=True):
        if returned is None:
            continue
        results = dict(zip(names, returned, strict=True))
        if over_ranks:
            found[fault] = {n: per_rank(x, layout, over_tokens=n not in REPLICATED) for n, x in results.items()}
        else:
            found[fault] = {n: _split(np.asarray(x), ranks, n) for n, x in results.items()}
    return found


def _unless_it_raises(program: Callable[..., Any], arguments: tuple[jax.Array, ...]) -> Any:
    """While it is traced: the others of one program must not fall with it."""
    try:
        return program(*arguments)
    except Exception:
        return None


def _keywords(problem: Problem, layout: Layout | None) -> dict[str, Any]:
    of_shape = {"scale": problem.shape.scale, "chunk_size": problem.shape.chunk_size}
    return {**of_shape, **keywords_of_mesh(layout), **placed_documents(problem, layout)}


def _split(x: np.ndarray, ranks: int, name: str) -> Pieces:
    return [x] * ranks if name in REPLICATED else np.split(x, ranks, axis=1)


def _asked(planted: Implementation, names: tuple[str, ...], keywords: dict[str, Any]) -> Callable[..., Any]:
    """A function of the eight arguments, and of `segment_ids` where these are not in `keywords`, that returns what
    `names` says.
    """

    def outputs(*arguments: jax.Array, **documents: jax.Array) -> Any:
        return planted.call(*arguments[:6], **keywords, **documents)

    def gradients(*arguments: jax.Array, **documents: jax.Array) -> Any:
        if planted.vjp is not None:
            return planted.vjp(*arguments, **keywords, **documents)
        return jax.vjp(partial(outputs, **documents), *arguments[:6])[1](tuple(arguments[6:]))

    return outputs if names == OUTPUTS else gradients


@lru_cache(maxsize=4)
def _compiled(right: Implementation, names: tuple[str, ...], *keywords: tuple[str, Any]) -> Callable[..., Any]:
    return jit_for_few_runs(_asked(right, names, dict(keywords)))
