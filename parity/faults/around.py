"""Transformations around an implementation, whatever it is: of what goes in, of what comes out, of its gradients.

Gradients stay honest: they are those of the transformed call, through `jax.vjp` or through the record's own `vjp`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from implementations.contract import Implementation


class Inputs(NamedTuple):
    """What a call is given. Tokens stand on axis 1, heads on axis 2; of the state, heads on axis 1."""

    q: Array
    k: Array
    v: Array
    g: Array
    beta: Array
    h0: Array


TOKENS = ("q", "k", "v", "g", "beta")


class Outputs(NamedTuple):
    """What a call returns, or the cotangents of that."""

    o: Array
    final_state: Array


class Gradients(NamedTuple):
    """What a vjp returns."""

    dq: Array
    dk: Array
    dv: Array
    dg: Array
    dbeta: Array
    dh0: Array


@dataclass(frozen=True)
class Setting:
    """The keywords of a call, for those who transform it. `ranks` is 1 where there is no mesh."""

    scale: float | None
    chunk_size: int
    ranks: int


Wrap = Callable[[Implementation], Implementation]
Pullback = Callable[[Inputs, Outputs], Gradients]


def _unchanged(x: Any, setting: Setting) -> Any:
    return x


def around(
    inputs: Callable[[Inputs, Setting], Inputs] = _unchanged,
    outputs: Callable[[Outputs, Setting], Outputs] = _unchanged,
) -> Wrap:
    """The call with both transformed; its gradients are those of the whole, its stages those of the changed inputs."""

    def wrap(implementation: Implementation) -> Implementation:
        def call(*given: Array, **keywords: Any) -> tuple[Array, Array]:
            setting = _setting(keywords)
            o, final_state = implementation.call(*inputs(Inputs(*given), setting), **keywords)
            o, final_state = outputs(Outputs(jnp.asarray(o), jnp.asarray(final_state)), setting)
            return o, final_state

        def vjp(*given: Array, **keywords: Any) -> tuple[Array, ...]:
            """The chain rule by hand, around a vjp that jax cannot look into."""
            setting = _setting(keywords)
            inside, to_inputs = jax.vjp(lambda *x: tuple(inputs(Inputs(*x), setting)), *given[:6])
            returned = (jnp.asarray(x) for x in implementation.call(*inside, **keywords))
            _, to_outputs = jax.vjp(lambda *x: tuple(outputs(Outputs(*x), setting)), *returned)
            gradients = implementation.vjp(*inside, *to_outputs(tuple(given[6:])), **keywords)  # type: ignore[misc]
            return to_inputs(tuple(jnp.asarray(x) for x in gradients))

        def stages(*given: Array, **keywords: Any) -> Mapping[str, Any]:
            return implementation.stages(*inputs(Inputs(*given), _setting(keywords)), **keywords)  # type: ignore[misc]

        return replace(
            implementation,
            call=call,
            vjp=vjp if implementation.vjp else None,
            stages=stages if implementation.stages else None,
        )

    return wrap


def around_gradients(transformed: Callable[[Pullback, Inputs, Outputs, Setting], Gradients]) -> Wrap:
    """Right outputs, and the gradients that `transformed(pullback, inputs, cotangents, setting)` makes of them.

    It may ask `pullback` at other inputs and for other cotangents.
    """

    def wrap(implementation: Implementation) -> Implementation:
        def vjp(*given: Array, **keywords: Any) -> tuple[Array, ...]:
            def pullback(inputs: Inputs, cotangents: Outputs) -> Gradients:
                if implementation.vjp is not None:
                    return Gradients(*(jnp.asarray(x) for x in implementation.vjp(*inputs, *cotangents, **keywords)))
                _, of_jax = jax.vjp(lambda *x: tuple(implementation.call(*x, **keywords)), *inputs)
                return Gradients(*of_jax(tuple(cotangents)))

            return tuple(transformed(pullback, Inputs(*given[:6]), Outputs(*given[6:]), _setting(keywords)))

        return replace(implementation, vjp=vjp)

    return wrap


def _setting(keywords: dict[str, Any]) -> Setting:
    mesh = keywords.get("mesh")
    ranks = math.prod(mesh.shape[axis] for axis in keywords["axes"]) if mesh is not None else 1
    return Setting(keywords["scale"], keywords["chunk_size"], ranks)
