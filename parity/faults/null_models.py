"""Null models: answers that say nothing, or the right answer in a wrong form. They must fail in every quantity."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from implementations.contract import Implementation
from parity.faults.around import TOKENS, Gradients, Inputs, Outputs, Pullback, Setting, Wrap, around, around_gradients
from parity.faults.fault import Fault
from parity.faults.kills import EVERY_QUANTITY


def _answers(change: Callable[[Array], Array]) -> Wrap:
    """Each of the eight right results, changed."""

    def gradients(pullback: Pullback, x: Inputs, cotangents: Outputs, setting: Setting) -> Gradients:
        return Gradients(*(change(d) for d in pullback(x, cotangents)))

    def wrap(implementation: Implementation) -> Implementation:
        def call(*inputs: Array, **keywords: Any) -> tuple[Any, Any]:
            o, final_state = implementation.call(*inputs, **keywords)
            return change(o), change(final_state)

        return replace(around_gradients(gradients)(implementation), call=call)

    return wrap


def _tokens_of_the_next_rank(x: Inputs, setting: Setting) -> Inputs:
    size = x.v.shape[1] // setting.ranks
    return x._replace(**{name: jnp.roll(getattr(x, name), -size, axis=1) for name in TOKENS})


def _null(name: str, cause: str, wrap: Wrap, *regimes: str, ranks: int = 1) -> Fault:
    return Fault(name, cause, "null", EVERY_QUANTITY, regimes or ("long_memory", "typical"), wrap=wrap, ranks=ranks)


FAULTS = (
    _null("zeros", "zeros everywhere", _answers(jnp.zeros_like)),
    _null(
        "one_token_late",
        "the right results, rolled by one token (states: by one key)",
        _answers(lambda x: jnp.roll(x, 1, axis=1 if x.ndim == 3 else -3)),
    ),
    _null("a_percent_too_large", "the right results times 1.01", _answers(lambda x: x * jnp.asarray(1.01, x.dtype))),
    _null("not_a_number", "NaN everywhere", _answers(lambda x: jnp.full_like(x, jnp.nan))),
    _null("wrong_dtype", "the right results in fp16", _answers(lambda x: x.astype(jnp.float16))),
    _null("broadcastable", "the first row of the right results, which would broadcast", _answers(lambda x: x[:1])),
    _null(
        "tokens_of_the_next_rank",
        "each rank returns the results of the rank after it",
        around(inputs=_tokens_of_the_next_rank),
        "long_memory",
        "zero_keys",
        ranks=4,
    ),
)
