"""Faults of the rule itself: of one token's step in `sequential`, or of what a call makes of its inputs."""

import math
from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
from jaxtyping import Array

from parity.faults.around import Inputs, Setting, Wrap, around
from parity.faults.edits import Edit
from parity.faults.fault import Fault
from parity.shapes import ALIGNED

_sequential = partial(Edit, "implementations.sequential")

_DECAY = "    h = jnp.exp(g)[..., None, None] * h\n"
_ERROR = '    e = beta[..., None] * (v - einsum("bhk,bhkv->bhv", k, h))\n'
_WRITE = '    h = h + einsum("bhk,bhv->bhkv", k, e)\n'
_READ = 'return h, einsum("bhkv,bhk->bhv", h, q)'

WEAK = ("long_memory", "typical")


def _step(name: str, cause: str, edit: Edit, *regimes: str, **rest: object) -> Fault:
    """One token's step, edited."""
    return Fault(name, cause, "rule", "o", regimes or WEAK, (edit,), **rest)  # type: ignore[arg-type]


def _given(name: str, cause: str, change: Callable[[Inputs], Inputs], *regimes: str, **rest: object) -> Fault:
    """The right rule on changed inputs."""

    def inputs(x: Inputs, setting: Setting) -> Inputs:
        return change(x)

    return Fault(name, cause, "rule", "o", regimes or WEAK, wrap=around(inputs), **rest)  # type: ignore[arg-type]


def _with_scale(change: Callable[[float, int, int], float]) -> Wrap:
    """As if the scale were `change(scale, K, V)`."""

    def inputs(x: Inputs, setting: Setting) -> Inputs:
        K, V = x.k.shape[-1], x.v.shape[-1]
        scale = K**-0.5 if setting.scale is None else setting.scale
        return x._replace(q=x.q * (change(scale, K, V) / scale))

    return around(inputs)


def _scaled(name: str, cause: str, change: Callable[[float, int, int], float], **rest: object) -> Fault:
    """Reads and their gradients are off, and nothing else is."""
    return Fault(name, cause, "rule", "o", WEAK, wrap=_with_scale(change), right=("final_state",), **rest)  # type: ignore[arg-type]


def _tile_heads(x: Inputs) -> Inputs:
    group = x.v.shape[2] // x.q.shape[2]
    return x._replace(q=jnp.tile(x.q, (1, 1, group, 1)), k=jnp.tile(x.k, (1, 1, group, 1)))


def _later(x: Array) -> Array:
    return jnp.roll(x, 1, axis=1)


STEPS = (
    _step(
        "error_before_decay",
        "the error is taken against the state that has not decayed yet",
        _sequential(_DECAY + _ERROR, _ERROR + _DECAY),
    ),
    _step(
        "decay_after_write",
        "the state decays after the write, not before it",
        _sequential(_DECAY + _ERROR + _WRITE, _ERROR + _WRITE + _DECAY),
    ),
    _step(
        "read_before_write",
        "a token reads the state before its own write",
        _sequential(_WRITE + "    " + _READ, '    o = einsum("bhkv,bhk->bhv", h, q)\n' + _WRITE + "    return h, o"),
        right=("final_state",),
    ),
    _step(
        "no_delta_term",
        "no delta term: beta v is written, whatever the state holds under that key",
        _sequential(_ERROR, "    e = beta[..., None] * v\n"),
    ),
    _step(
        "beta_on_the_value_only",
        "beta weighs the value and not what the state holds: beta v - h~^T k",
        _sequential(_ERROR, '    e = beta[..., None] * v - einsum("bhk,bhkv->bhv", k, h)\n'),
    ),
    _step(
        "gate_without_exp",
        "the decay is 1 + g, not exp(g)",
        _sequential("jnp.exp(g)", "(1 + g)"),
    ),
)

GATES = (
    _given("gate_ignored", "no decay: the gate is ignored", lambda x: x._replace(g=jnp.zeros_like(x.g))),
    _given("gate_sign", "the sign of the gate is flipped: states grow", lambda x: x._replace(g=-x.g), "long_memory"),
    _given(
        "gate_base_two",
        "exp2 stands for exp: the gate is not converted to base two",
        lambda x: x._replace(g=x.g * math.log(2)),
    ),
    _given(
        "gate_one_token_late", "a token decays by the gate of the token before it", lambda x: x._replace(g=_later(x.g))
    ),
    _given(
        "gate_clamped",
        "gates are clamped at -10: a strong decay leaves something behind",
        lambda x: x._replace(g=jnp.maximum(x.g, -10.0)),
        "long_memory",
        "mixed_gates",
    ),
    _given(
        "gate_of_head_0",
        "head 0's gate decays every head",
        lambda x: x._replace(g=jnp.broadcast_to(x.g[..., :1], x.g.shape)),
    ),
    _given(
        "gate_of_row_0",
        "batch row 0's gates decay every row",
        lambda x: x._replace(g=jnp.broadcast_to(x.g[:1], x.g.shape)),
        source="unsloth-zoo #776",
    ),
    _given(
        "gate_and_beta_swapped",
        "g and beta are passed in each other's place",
        lambda x: x._replace(g=x.beta, beta=x.g),
        "typical",
    ),
)

STRENGTHS = (
    _given("beta_constant", "beta is replaced by 1", lambda x: x._replace(beta=jnp.ones_like(x.beta))),
    _given("beta_twice", "beta is applied to the value twice", lambda x: x._replace(v=x.beta[..., None] * x.v)),
    _given(
        "beta_clamped",
        "beta is clamped to 1",
        lambda x: x._replace(beta=jnp.minimum(x.beta, 1.0)),
        "beta_near_two",
    ),
    _given(
        "beta_one_token_late",
        "a token writes with the beta of the token before it",
        lambda x: x._replace(beta=_later(x.beta)),
    ),
    _given(
        "beta_of_head_0",
        "head 0's beta is used for every head",
        lambda x: x._replace(beta=jnp.broadcast_to(x.beta[..., :1], x.beta.shape)),
    ),
)

KEYS_AND_HEADS = (
    _given("k_and_q_swapped", "k and q are swapped", lambda x: x._replace(q=x.k, k=x.q)),
    _given(
        "value_heads_tiled",
        "value heads are tiled over key heads: head i reads key head i mod Hk",
        _tile_heads,
        source="SlimServe #12",
    ),
    _given(
        "one_head_reads_another_key",
        "the last value head uses the key of the first",
        lambda x: Inputs(
            jnp.repeat(x.q, x.v.shape[2] // x.q.shape[2], axis=2),
            jnp.repeat(x.k, x.v.shape[2] // x.k.shape[2], axis=2).at[:, :, -1].set(x.k[:, :, 0]),
            *x[2:],
        ),
    ),
    _given(
        "keys_normalised_inside",
        "keys are normalised once more, whatever the caller made of them",
        lambda x: x._replace(k=x.k / jnp.sqrt(jnp.sum(x.k**2, axis=-1, keepdims=True) + 1e-6)),
        "tiny_keys",
        source="flashinfer #5255",
    ),
)

SCALES = (
    _scaled("scale_twice", "the scale is applied twice", lambda scale, K, V: scale**2, source="mlx-lm #1823"),
    _scaled("scale_missing", "the scale is not applied", lambda scale, K, V: 1.0),
    _scaled("scale_of_the_value_size", "the scale is V**-0.5, not K**-0.5", lambda scale, K, V: V**-0.5),
    _scaled(
        "scale_ignored",
        "a scale that is given is ignored: it is always K**-0.5",
        lambda scale, K, V: K**-0.5,
        shape=ALIGNED,
    ),
)

FAULTS = (*STEPS, *GATES, *STRENGTHS, *KEYS_AND_HEADS, *SCALES)
