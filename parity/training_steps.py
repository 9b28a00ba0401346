"""Twenty steps of AdamW on a hybrid model, in any layout, against the same run in float64 on one device.

The loss of each step and every array of parameters after it are measured in units, as everything is. kappa is what
rounding does to a run: the rms response to relative perturbations of one unit, each of its own sign, at every step of
what correct code rounds:

- every parameter, when it is used;
- every activation that a layer hands on, and its cotangent: inputs and outputs of norms, mixers, convolutions, the rule
  and the softmax. The cotangents are not implied by the parameters' gradients: a gradient is a sum over tokens, its
  terms cancel, and rounding it is in proportion to the terms. AdamW divides each element of a gradient by its own size,
  so that where the sum has cancelled the rounding of the terms is all of the step's error;
- every decay, by one unit of 1: exp(g) is rounded, and where g is near 0 nothing of g shows it;
- every gradient, once summed.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from typing import Any, NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from implementations import training_step
from implementations.causal_conv import causal_conv
from implementations.chunked import CHUNKED
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.contract import Dtype, Implementation
from implementations.hybrid_model import LINEAR_LAYERS, loss, unpinned, with_trained_state
from implementations.layer import gated_delta_net
from implementations.layer_layout import LayerLayout, Mode
from implementations.layer_on_mesh import layer_on_mesh
from implementations.layer_sizes import Sizes, parameters_like
from oracles.stream import Stream
from parity.compilation import jit_for_few_runs
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF
from parity.unit import units

STEPS = 20
B, T, CHUNK_SIZE = 16, 48, 4
SIZES = Sizes(D=16, Hk=2, Hv=4, K=6, V=8, W=4)
VOCABULARY, HIDDEN, HEADS, HEAD_SIZE = 32, 24, 2, 8
RATE, WEIGHT_DECAY = 2e-4, 0.1

PROBES = 8
PERTURBATION = 1e-9  # in f64, where it is far above rounding and far below what is not linear

Tree = Any
Batch = tuple[Array, Array]  # tokens and targets `[B, T]`


@dataclass(frozen=True)
class Setup:
    """How a run is laid out: `data` and `context` devices share rows and tokens. `explicit`: the axes are, so that jax
    checks the layout of rows and tokens in every operation when it traces.
    """

    name: str
    rule: Implementation = CHUNKED
    data: int = 1
    context: int = 1
    accumulation: int = 1
    zero1: bool = False
    explicit: bool = False
    step: Callable[..., Any] = training_step.step

    @property
    def mesh(self) -> Mesh | None:
        if self.data == 1 and not self.rule.context_parallel:
            return None
        devices = np.array(jax.devices()[: self.data * self.context]).reshape(self.data, self.context)
        type = AxisType.Explicit if self.explicit else AxisType.Auto
        return Mesh(devices, ("data", "context"), axis_types=(type, type))

    @property
    def layer(self) -> Callable[..., Any]:
        """`(parameters, x, conv_state, recurrent_state) -> (y, ...)`, on the mesh where there is one."""
        mesh = self.mesh
        if mesh is None:
            return partial(gated_delta_net, rule=partial(self.rule.call, scale=None, chunk_size=CHUNK_SIZE))
        context = ("context",) if self.rule.context_parallel else ()
        mode: Mode = "explicit" if self.explicit else "automatic"
        over: dict[str, Any] = {"data": "data", "context": context, "chunk_size": CHUNK_SIZE}
        return partial(layer_on_mesh, LayerLayout(mesh, SIZES, self.rule, mode, **over))


SETUPS = {
    setup.name: setup
    for setup in (
        Setup("plain"),
        *(Setup(f"accumulation{n}", accumulation=n) for n in (4, 8)),
        *(Setup(f"context{n}", rule=TWO_PHASE, context=n) for n in (1, 2, 4, 8)),
        Setup("data2", data=2),
        *(Setup(f"zero1_accumulation{n}", data=2, zero1=True, accumulation=n) for n in (1, 4, 8)),
        Setup("zero1_context2", rule=TWO_PHASE, data=2, context=2, zero1=True),
        Setup("explicit", data=2, explicit=True),
        *(Setup(f"explicit_context{n}", rule=TWO_PHASE, context=n, explicit=True) for n in (1, 2, 4, 8)),
        *(
            Setup(f"explicit_zero1_accumulation{n}", data=2, zero1=True, accumulation=n, explicit=True)
            for n in (1, 4, 8)
        ),
        Setup(
            "explicit_zero1_context2_accumulation4",
            *(TWO_PHASE, 2, 2, 4),
            zero1=True,
            explicit=True,
        ),
    )
}


class Run(NamedTuple):
    """The loss before each step `[STEPS]`, and the arrays of parameters after it, `[STEPS, ...]`, by path."""

    loss: np.ndarray
    parameters: dict[str, np.ndarray]


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


def run(setup: Setup, dtype: Dtype = "f32") -> Run:
    """f64 runs have x64 on."""
    mesh = setup.mesh
    with jax.enable_x64(dtype == "f64"), jax.set_mesh(mesh) if setup.explicit else nullcontext():
        return _as_run(program(setup, dtype)(*placed(start(dtype), mesh)))


@cache
def truth(rounded: Dtype) -> tuple[Run, Run]:
    """The run in f64 on one device that starts from what `rounded` holds, and its kappa.

    On a CPU, whatever else there is: a TPU has no f64.
    """
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        parameters, batch = start(rounded)
        parameters = jax.tree.map(lambda x: x.astype(jnp.float64), parameters)
        probe = _perturbed_program()
        want = _as_run(probe(parameters, batch, 0.0, 0))
        moved = [_as_run(probe(parameters, batch, PERTURBATION, seed)) for seed in range(PROBES)]
    kappa = jax.tree.map(
        lambda x, *of_probes: np.sqrt(np.mean([(y - x) ** 2 for y in of_probes], axis=0)) / PERTURBATION, want, *moved
    )
    return want, kappa


def in_units(found: Run, dtype: Dtype = "f32") -> Run:
    """How far off the loss of each step is, and each array of parameters after it, of each layer on its own:
    `[STEPS]`, and `[STEPS, layers]`.
    """
    want, kappa = truth(dtype)
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


def adamw() -> optax.GradientTransformation:
    return optax.adamw(RATE, weight_decay=WEIGHT_DECAY)


@cache
def program(setup: Setup, dtype: Dtype) -> Callable[..., Any]:
    """`(parameters, batch) -> (losses, parameters after each step)`, a scan over steps; `dtype` keeps apart what x64
    makes different.
    """
    mesh = setup.mesh
    pin = partial(_over_rows_and_tokens, mesh=mesh, explicit=setup.explicit) if mesh else unpinned
    linear_attention = with_trained_state(setup.layer)
    state = training_step.Zero1(mesh) if mesh and setup.zero1 else training_step.EveryDevice()

    def of_batch(parameters: Tree, batch: Batch) -> Array:
        return loss(parameters, *batch, linear_attention=linear_attention, pin=pin)

    step = partial(setup.step, of_batch, adamw(), accumulation=setup.accumulation, state=state)

    def steps(parameters: Tree, batch: Batch) -> tuple[Array, Tree]:
        def one(carry: tuple[Tree, Tree], _: None) -> tuple[tuple[Tree, Tree], tuple[Array, Tree]]:
            parameters, optimizer_state, value = step(*carry, batch)
            return (parameters, optimizer_state), (value, parameters)

        carry = parameters, training_step.start(adamw(), parameters, state)
        return jax.lax.scan(one, carry, length=STEPS)[1]

    return jit_for_few_runs(steps)


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


def _over_rows_and_tokens(x: Array, place: str, layer: Any, *, mesh: Mesh, explicit: bool) -> Array:
    """Where axes are explicit, keys and values are told to be gathered for the queries of each rank."""
    if explicit and place in ("k", "v"):
        return jax.sharding.reshard(x, PartitionSpec("data"))
    move = jax.sharding.reshard if explicit else jax.lax.with_sharding_constraint
    return move(x, NamedSharding(mesh, PartitionSpec("data", "context")))


def placed(started: tuple[Tree, Batch], mesh: Mesh | None) -> tuple[Tree, Batch]:
    """Parameters whole on every device, rows over `data`, and tokens over `context`."""
    if mesh is None:
        return started
    whole, of_tokens = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data", "context"))
    return jax.device_put(started[0], whole), jax.device_put(started[1], of_tokens)


def _as_run(found: tuple[Array, Tree]) -> Run:
    losses, parameters = found
    by_path = {
        "/".join(str(key.key) for key in path): np.asarray(x, dtype=np.float64)
        for path, x in jax.tree.leaves_with_path(parameters)
    }
    return Run(np.asarray(losses, dtype=np.float64), by_path)


def start(dtype: Dtype) -> tuple[Tree, Batch]:
    """Parameters, rounded to `dtype`, and tokens with their targets."""
    stream = Stream("training steps")
    wide = jnp.float64 if dtype == "f64" else jnp.float32
    D = SIZES.D

    def draw(name: str, *shape: int, scale: float, about: float = 0.0) -> Array:
        return jnp.asarray(about + scale * stream.normal(name, *shape), dtype=wide)

    def norm(name: str, *shape: int) -> Array:
        return draw(name, *shape, scale=0.1, about=1.0)

    def layer(name: str, *stacked: int, mixer: Tree) -> Tree:
        return {
            "norm": norm(f"{name} norm", *stacked, D),
            "mixer": mixer,
            "mlp_norm": norm(f"{name} mlp norm", *stacked, D),
            "mlp": {
                "gate": draw(f"{name} gate", *stacked, D, HIDDEN, scale=D**-0.5),
                "up": draw(f"{name} up", *stacked, D, HIDDEN, scale=D**-0.5),
                "down": draw(f"{name} down", *stacked, HIDDEN, D, scale=HIDDEN**-0.5),
            },
        }

    linear = {}
    for name, like in parameters_like(SIZES, wide).items():
        shape = (LINEAR_LAYERS, *like.shape)
        summed = SIZES.W if name.startswith("conv") else SIZES.Hv * SIZES.V if name == "out" else D
        linear[name] = draw(f"linear {name}", *shape, scale=summed**-0.5)
    linear["A_log"] = draw("linear A_log", LINEAR_LAYERS, SIZES.Hv, scale=0.3, about=-0.5)
    linear["dt_bias"] = draw("linear dt_bias", LINEAR_LAYERS, SIZES.Hv, scale=0.3)
    linear["initial_state"] = draw("linear state", LINEAR_LAYERS, SIZES.Hv, SIZES.K, SIZES.V, scale=0.3)
    linear["norm"] = norm("linear gated norm", LINEAR_LAYERS, SIZES.V)
    full = {name: draw(f"full {name}", D, HEADS, HEAD_SIZE, scale=D**-0.5) for name in ("q", "k", "v")}
    full["out"] = draw("full out", HEADS, HEAD_SIZE, D, scale=(HEADS * HEAD_SIZE) ** -0.5)
    parameters = {
        "embedding": draw("embedding", VOCABULARY, D, scale=1.0),
        "linear": layer("linear", LINEAR_LAYERS, mixer=linear),
        "full": layer("full", mixer=full),
        "norm": norm("norm", D),
        "readout": draw("readout", D, VOCABULARY, scale=0.001),
    }
    drawn = stream.integers(
        "text", VOCABULARY, 3, B, T + 1
    )  # the least of three: some words are common, and learnt first
    text = jnp.asarray(drawn.min(axis=0), dtype=jnp.int32)
    return parameters, (text[:, :-1], text[:, 1:])
