"""A sequence in pieces: each starts from the states that the one before has left, and the whole is what is judged."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from implementations.contract import Dtype
from implementations.decode import in_slots, step
from implementations.layer_sizes import states_like
from oracles.gated_delta_net import CONVOLVED, OUTPUTS, inputs_of
from parity.compilation import jit_for_few_runs
from parity.layer.measure import Pieces
from parity.layer.problem import SIZES, B, Problem, T, arguments
from parity.layer.run import Around

Step = Callable[..., Any]

SLOTS, MINE = 5, (3, 1)  # of a table, and those of our rows


@cache
def _program(around: Around, dtype: Dtype) -> Callable[..., Any]:
    return jit_for_few_runs(around.call())


@cache
def _step(one: Step, dtype: Dtype) -> Callable[..., Any]:
    return jit_for_few_runs(one)


def in_pieces(around: Around, problem: Problem, lengths: Sequence[int], one: Step = step) -> Pieces:
    """`OUTPUTS` of a prefill in pieces of these lengths, and then by `one` token by token to the end, on one device."""

    def run(given: dict[str, jax.Array]) -> tuple[Any, ...]:
        x, parameters, *states = inputs_of(given)  # type: ignore[arg-type]
        y = []
        for start, end in pairwise(accumulate(lengths, initial=0)):
            more, *states = _program(around, problem.dtype)(parameters, x[:, start:end], *states)
            y.append(more)
        for t in range(sum(lengths), T):
            more, *states = _step(one, problem.dtype)(parameters, x[:, t], *states)
            y.append(more[:, None])
        return jnp.concatenate(y, axis=1), *states

    return _answered(run, problem)


def in_poisoned_slots(
    around: Around, problem: Problem, lengths: Sequence[int], table: Callable[..., Any] = in_slots
) -> Pieces:
    """The same in slots of a table that holds NaN, of a fresh problem: `table` is told that the first piece has no
    initial state.
    """
    slots = jnp.asarray(MINE, jnp.int32)

    def run(given: dict[str, jax.Array]) -> tuple[Any, ...]:
        x, parameters, *_ = inputs_of(given)  # type: ignore[arg-type]
        held: Any = jax.tree.map(
            lambda like: jnp.full(like.shape, jnp.nan, like.dtype), states_like(SIZES[problem.sizes], SLOTS, x.dtype)
        )
        y = []
        ends = [*accumulate(lengths, initial=0), *range(sum(lengths) + 1, T + 1)]
        for start, end in pairwise(ends):
            known = jnp.full(B, start > 0)
            one_token = start >= sum(lengths)
            piece = _in_slots(around, problem.dtype, table, one_token)
            more, *held = piece(parameters, x[:, start:end], *held, slots, known)
            y.append(more)
        return jnp.concatenate(y, axis=1), *jax.tree.map(lambda x: x[slots], held)

    return _answered(run, problem)


@cache
def _in_slots(around: Around, dtype: Dtype, table: Callable[..., Any], one_token: bool) -> Callable[..., Any]:
    def piece(parameters: Any, x: jax.Array, *held: Any) -> Any:
        if not one_token:
            return table(partial(around.call(), parameters, x), *held)
        y, *states = table(partial(step, parameters, x[:, 0]), *held)
        return y[:, None], *states

    return jit_for_few_runs(piece)


def _answered(run: Callable[..., tuple[Any, ...]], problem: Problem) -> Pieces:
    with jax.enable_x64(problem.dtype == "f64"):
        given = {name: jax.device_put(x.copy()) for name, x in arguments(problem).items()}
        y, conv_state, recurrent_state = run(given)
        found = (y, *(conv_state[name] for name in CONVOLVED), recurrent_state)
        return {name: [np.asarray(x)] for name, x in zip(OUTPUTS, found, strict=True)}
