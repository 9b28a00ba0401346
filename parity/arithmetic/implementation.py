"""An implementation as it would be where its products take fewer passes of a matrix unit."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax

from implementations.contract import Implementation
from parity.arithmetic.emulate import emulate
from parity.arithmetic.passes import Policy


def with_products(implementation: Implementation, policy: Policy) -> Implementation:
    """The record `<name>_<policy>`: outputs and gradients of `implementation` with its products emulated by `policy`.

    It claims what `implementation` claims, and so is judged: is this precision enough for it? Gradients are those that
    `implementation` brings, or those of `jax.vjp`, emulated as a whole. Raises ValueError where jax cannot trace it.
    """
    if not implementation.traceable:
        raise ValueError(f"{implementation.name} cannot be traced by jax: its products cannot be emulated")

    def call(*inputs: jax.Array, **keywords: Any) -> Any:
        return emulate(partial(implementation.call, **keywords), policy)(*inputs)

    def vjp(*arguments: jax.Array, **keywords: Any) -> Any:
        return emulate(partial(_gradients(implementation), **keywords), policy)(*arguments)

    has_gradients = "gradients" in implementation.supports
    return replace(
        implementation,
        name=f"{implementation.name}_{policy}",
        call=call,
        vjp=vjp if has_gradients else None,
        stages=None,
    )


def _gradients(implementation: Implementation) -> Callable[..., Any]:
    if implementation.vjp is not None:
        return implementation.vjp

    def gradients(*arguments: jax.Array, **keywords: Any) -> Any:
        _, pullback = jax.vjp(partial(implementation.call, **keywords), *arguments[:6])
        return pullback(tuple(arguments[6:]))

    return gradients
