"""A small training run around an implementation, and how far its loss may be off at each step.

Projections in front of the rule and behind it as in Qwen3-Next (SiLU and L2 norm of q and k, `g = -exp(A_log)
softplus(a + dt_bias)`), a trained initial state, squared error of the outputs and of the final state, plain gradient
descent. A run is one program, a scan over steps.

Its losses are measured in units, as everything is: `|loss - truth| / (u_c kappa + u_out |truth|)`. The truth is the
same run in f64, and kappa what rounding does to a run: the rms response of the loss of each step to relative
perturbations of one unit of the data, and of every parameter and gradient afresh at each step.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from implementations.chunked import CHUNKED
from implementations.contract import Dtype, Implementation
from oracles.stream import Stream
from parity.compilation import jit_for_few_runs
from parity.layouts import Layout, over
from parity.meshes import keywords
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF
from parity.unit import units
from parity.x64 import x64

STEPS = 24
RATE = 2.0
B, T, D, HK, HV, K, V, CHUNK_SIZE = 2, 128, 12, 2, 4, 8, 6, 8

PROBES = 8
PERTURBATION = 1e-7  # in f64, where it is far above rounding and far below what is not linear

Parameters = dict[str, Array]


class Noise(NamedTuple):
    """Relative perturbations of size `scale`, drawn from `seed`; of size 0 there are none."""

    scale: Float[Array, ""] | float
    seed: Array | int


def losses(implementation: Implementation, dtype: Dtype, ranks: int = 1) -> Float[np.ndarray, " steps"]:
    """The loss of each step before it is taken, of a run on `ranks` ranks. f64 runs have x64 on."""
    layout = over(ranks) if implementation.context_parallel else None
    with x64(dtype == "f64"):
        return np.asarray(_run(implementation, dtype, layout)(*_start(dtype), Noise(0.0, 0)), dtype=np.float64)


@cache
def truth(rounded: Dtype) -> tuple[np.ndarray, np.ndarray]:
    """The losses of the run in f64 that starts from what `rounded` holds, and their kappa: `[steps]` each.

    On a CPU, whatever else there is: a TPU has no f64.
    """
    with x64(True), jax.default_device(jax.devices("cpu")[0]):
        run = _run(CHUNKED, "f64", None)
        start = jax.tree.map(lambda x: x.astype(jnp.float64), _start(rounded))
        want = np.asarray(run(*start, Noise(0.0, 0)))
        moved = [np.asarray(run(*start, Noise(PERTURBATION, probe))) for probe in range(PROBES)]
    return want, np.sqrt(np.mean([(x - want) ** 2 for x in moved], axis=0)) / PERTURBATION


def in_units(found: np.ndarray, dtype: Dtype) -> Float[np.ndarray, " steps"]:
    """How far each loss is off; a step is a block of its own."""
    flat = (x.reshape(-1, 1, 1, 1) for x in (found, *truth(dtype)))
    u = UNIT_ROUNDOFF[dtype]
    return units(*flat, u_c=u, u_out=u, floor=SMALLEST_NORMAL[dtype])[:, 0, 0]


@cache
def _run(implementation: Implementation, dtype: Dtype, layout: Layout | None) -> Callable[..., Array]:
    core = partial(implementation.call, scale=None, chunk_size=CHUNK_SIZE, **keywords(layout))

    def step(parameters: Parameters, keys: Array, *, data: tuple[Array, ...], scale: Any) -> tuple[Parameters, Array]:
        used = _perturbed(parameters, keys[0], scale)
        loss, gradients = jax.value_and_grad(_loss)(used, *data, core)
        gradients = _perturbed(gradients, keys[1], scale)
        return jax.tree.map(lambda x, d: x - RATE * d, used, gradients), loss

    def run(parameters: Parameters, data: tuple[Array, ...], noise: Noise) -> Array:
        of_data, of_steps = jax.random.split(jax.random.key(noise.seed))
        data = _perturbed(data, of_data, noise.scale)
        keys = jax.random.split(of_steps, (STEPS, 2))
        return jax.lax.scan(partial(step, data=data, scale=noise.scale), parameters, keys)[1]

    return jit_for_few_runs(run)


def _loss(parameters: Parameters, x: Array, wanted: Array, core: Callable[..., tuple[Array, Array]]) -> Array:
    """Squared error of the read-out, and of the final state where it should be 0."""
    project = partial(jnp.einsum, "btd,dhk->bthk", x, precision=jax.lax.Precision.HIGHEST)
    gate = partial(jnp.einsum, "btd,dh->bth", x, precision=jax.lax.Precision.HIGHEST)
    q, k = (_normalised(jax.nn.silu(project(parameters[name]))) for name in ("q", "k"))
    g = -jnp.exp(parameters["A_log"]) * jax.nn.softplus(gate(parameters["a"]) + parameters["dt_bias"])
    beta = jax.nn.sigmoid(gate(parameters["beta"]))
    o, final_state = core(q, k, project(parameters["v"]), g, beta, parameters["initial_state"])
    read = jnp.einsum("bthv,hvd->btd", o, parameters["out"], precision=jax.lax.Precision.HIGHEST)
    return jnp.mean((read - wanted) ** 2) + 0.01 * jnp.mean(final_state**2)


def _normalised(x: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.sum(x**2, axis=-1, keepdims=True) + 1e-6)


def _perturbed(tree: Any, key: Array, scale: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    moved = [x * (1 + scale * jax.random.normal(k, x.shape, x.dtype)) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, moved)


def _start(dtype: Dtype) -> tuple[Parameters, tuple[Array, Array]]:
    """Parameters and data, rounded to `dtype`."""
    stream = Stream("training")
    wide = jnp.float64 if dtype == "f64" else jnp.float32

    def draw(name: str, *shape: int, scale: float = 1.0, about: float = 0.0) -> Array:
        return jnp.asarray(about + scale * stream.normal(name, *shape), dtype=wide)

    parameters = {
        "q": draw("q", D, HK, K, scale=D**-0.5),
        "k": draw("k", D, HK, K, scale=D**-0.5),
        "v": draw("v", D, HV, V, scale=D**-0.5),
        "a": draw("a", D, HV, scale=D**-0.5),
        "beta": draw("beta", D, HV, scale=D**-0.5),
        "A_log": draw("A_log", HV, scale=0.3, about=-0.5),
        "dt_bias": draw("dt_bias", HV, scale=0.3),
        "initial_state": draw("initial_state", B, HV, K, V, scale=0.1),
        "out": draw("out", HV, V, D, scale=(HV * V) ** -0.5),
    }
    return parameters, (draw("x", B, T, D), draw("wanted", B, T, D))
