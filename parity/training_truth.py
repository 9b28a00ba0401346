"""How far off a training run is: in units, from the same run in float64 on one device.

The loss of each step and every array of parameters after it are measured as everything is. kappa is what rounding does
to a run: the rms response to relative perturbations of one unit, each of its own sign, at every step of what correct
code rounds:

- every parameter, when it is used;
- every activation that a layer hands on, and its cotangent: inputs and outputs of norms, mixers, convolutions, the rule
  and the softmax. The cotangents are not implied by the parameters' gradients: a gradient is a sum over tokens, its
  terms cancel, and rounding it is in proportion to the terms. AdamW divides each element of a gradient by its own size,
  so that where the sum has cancelled the rounding of the terms is all of the step's error;
- every decay, by one unit of 1: exp(g) is rounded, and where g is near 0 nothing of g shows it;
- every gradient, once summed.
"""

from collections.abc import Callable
from functools import cache, partial
from itertools import count
from typing import Any, NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from implementations.causal_conv import causal_conv
from implementations.chunked import CHUNKED
from implementations.contract import Dtype
from implementations.hybrid_model import LINEAR_LAYERS, loss, with_trained_state
from implementations.layer import gated_delta_net
from parity.compilation import jit_for_few_runs
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF
from parity.training_steps import CHUNK_SIZE, STEPS, Batch, Run, Tree, adamw, as_run, start
from parity.unit import units
from parity.x64 import x64

PROBES = 8
PERTURBATION = 1e-9  # in f64, where it is far above rounding and far below what is not linear


class Signs(NamedTuple):
    """The perturbations of one step: relative ones of size `scale`, each element with a sign of its own."""

    seed: Array  # uint32
    scale: Any

    def _signs(self, x: Array, place: str) -> Array:
        """A hash of seed, place and index: random numbers of jax are slow to compile, and slow without optimisation."""
        n = jax.lax.iota(jnp.uint32, x.size).reshape(x.shape) * jnp.uint32(0x9E3779B1)
        n = _mixed(n ^ _mixed(self.seed ^ jnp.uint32(crc32(place.encode()))))
        return self.scale * (1 - 2.0 * (n >> 31)).astype(x.dtype)

    def at(self, x: Array, place: str) -> Array:
        """x with every element moved."""
        return x * (1 + self._signs(x, place))

    def through(self, x: Array, place: str) -> Array:
        """The same, and its cotangent moved by signs of its own."""
        forward, backward = self._signs(x, place), self._signs(x, place + " backward")
        return x * (1 + backward) + jax.lax.stop_gradient(x * (forward - backward))

    def in_layer(self, layer: Any) -> "Signs":
        return self._replace(seed=_mixed(self.seed + jnp.asarray(layer + 2, jnp.uint32)))

    def of_tree(self, tree: Tree, place: str) -> Tree:
        return jax.tree.map_with_path(lambda path, x: self.at(x, place + jax.tree_util.keystr(path)), tree)


def _mixed(n: Array) -> Array:
    """The finalizer of MurmurHash3: every bit of the result depends on every bit of n."""
    n = (n ^ (n >> 16)) * jnp.uint32(0x85EBCA6B)
    n = (n ^ (n >> 13)) * jnp.uint32(0xC2B2AE35)
    return n ^ (n >> 16)


@cache
def truth(rounded: Dtype) -> tuple[Run, Run]:
    """The run in f64 on one device that starts from what `rounded` holds, and its kappa.

    On a CPU, whatever else there is: a TPU has no f64.
    """
    with x64(True), jax.default_device(jax.devices("cpu")[0]):
        parameters, batch = start(rounded)
        parameters = jax.tree.map(lambda x: x.astype(jnp.float64), parameters)
        probe = _perturbed_program()
        want = as_run(probe(parameters, batch, 0.0, 0))
        moved = [as_run(probe(parameters, batch, PERTURBATION, seed)) for seed in range(PROBES)]
    kappa = jax.tree.map(
        lambda x, *of_probes: np.sqrt(np.mean([(y - x) ** 2 for y in of_probes], axis=0)) / PERTURBATION, want, *moved
    )
    return want, kappa


def in_units(found: Run, dtype: Dtype = "f32", *, other: Run | None = None) -> Run:
    """How far off the loss of each step is, and each array of parameters after it, of each layer on its own:
    `[STEPS]`, and `[STEPS, layers]`; from the truth, or from what `other` is.
    """
    want, kappa = truth(dtype)
    want = want if other is None else other
    u = UNIT_ROUNDOFF[dtype]
    measure = partial(units, u_c=u, u_out=u, floor=SMALLEST_NORMAL[dtype])

    def of_parameter(path: str) -> np.ndarray:
        layers = LINEAR_LAYERS if path.startswith("linear/") else 1
        blocks = (x.parameters[path].reshape(STEPS * layers, 1, 1, -1) for x in (found, want, kappa))
        return measure(*blocks).reshape(STEPS, layers)

    losses = measure(*(x.loss.reshape(-1, 1, 1, 1) for x in (found, want, kappa)))[:, 0, 0]
    return Run(losses, {path: of_parameter(path) for path in want.parameters})


def worst(off: Run) -> Float[np.ndarray, " steps"]:
    """The units of the worst array of parameters after each step."""
    return np.max([x.max(axis=1) for x in off.parameters.values()], axis=0)


@cache
def _perturbed_program() -> Callable[..., Any]:
    """The same on one device, `(parameters, batch, scale, seed)`: what is rounded moves by `scale`."""

    def value(parameters: Tree, batch: Batch, signs: Signs) -> Array:
        def pin(x: Array, place: str, layer: Any) -> Array:
            return signs.in_layer(layer).through(x, place)

        def linear_attention(parameters: Tree, x: Array, layer: Any) -> Array:
            moved = signs.in_layer(layer)
            parts: dict[str, Any] = {"rule": _moved_rule(moved), "convolution": _moved_convolution(moved)}
            return with_trained_state(partial(gated_delta_net, **parts))(parameters, x, layer)

        return loss(parameters, *batch, linear_attention=linear_attention, pin=pin)

    def steps(parameters: Tree, batch: Batch, scale: Any, seed: Any) -> tuple[Array, Tree]:
        optimizer = adamw()

        def one(carry: tuple[Tree, Tree], number: Array) -> tuple[tuple[Tree, Tree], tuple[Array, Tree]]:
            parameters, optimizer_state = carry
            signs = Signs(_mixed(jnp.uint32(seed) * STEPS + number), scale)
            used = signs.of_tree(parameters, "parameters")
            found, gradients = jax.value_and_grad(value)(used, batch, signs)
            updates, optimizer_state = optimizer.update(signs.of_tree(gradients, "gradients"), optimizer_state, used)
            parameters = optax.apply_updates(used, updates)
            return (parameters, optimizer_state), (found, parameters)

        return jax.lax.scan(one, (parameters, optimizer.init(parameters)), jnp.arange(STEPS, dtype=jnp.uint32))[1]

    return jit_for_few_runs(steps)


def _moved_rule(signs: Signs) -> Callable[..., tuple[Array, Array]]:
    def rule(q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array) -> tuple[Array, Array]:
        named = zip(("q", "k", "v", "g", "beta"), (q, k, v, g, beta), strict=True)
        q, k, v, g, beta = (signs.through(x, f"{name} of the rule") for name, x in named)
        g = g + signs.at(jnp.ones_like(g), "decay") - 1
        o, state = CHUNKED.call(q, k, v, g, beta, state, scale=None, chunk_size=CHUNK_SIZE)
        return signs.through(o, "o of the rule"), state

    return rule


def _moved_convolution(signs: Signs) -> Callable[..., tuple[Array, Array]]:
    calls = count()  # that of q, then that of k, then that of v

    def convolution(x: Array, weight: Array, state: Array) -> tuple[Array, Array]:
        call = next(calls)
        y, state = causal_conv(signs.through(x, f"before convolution {call}"), weight, state)
        return signs.through(y, f"behind convolution {call}"), state

    return convolution
