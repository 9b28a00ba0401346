"""Faults in gradients alone, made around any implementation: the outputs are right."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array

from parity.faults.around import Gradients, Inputs, Outputs, Pullback, Setting, around_gradients
from parity.faults.fault import Fault

Transformed = Callable[[Pullback, Inputs, Outputs, Setting], Gradients]

WEAK = ("long_memory", "typical")


def _wrong(
    name: str,
    cause: str,
    quantity: str,
    transformed: Transformed,
    *regimes: str,
    right: tuple[str, ...] = (),
    **rest: object,
) -> Fault:
    outputs_too = ("o", "final_state", *right)
    where = regimes or WEAK
    return Fault(
        name,
        cause,
        "backward",
        quantity,
        where,
        wrap=around_gradients(transformed),
        right=outputs_too,
        **rest,  # type: ignore[arg-type]
    )


def _changed(change: Callable[[Gradients, Inputs], Gradients]) -> Transformed:
    """The right gradients, changed."""

    def transformed(pullback: Pullback, x: Inputs, cotangents: Outputs, setting: Setting) -> Gradients:
        return change(pullback(x, cotangents), x)

    return transformed


def _no_final_state_cotangent(pullback: Pullback, x: Inputs, cotangents: Outputs, setting: Setting) -> Gradients:
    return pullback(x, cotangents._replace(final_state=jnp.zeros_like(cotangents.final_state)))


def _final_state_cotangent_of_every_rank(
    pullback: Pullback, x: Inputs, cotangents: Outputs, setting: Setting
) -> Gradients:
    return pullback(x, cotangents._replace(final_state=cotangents.final_state * setting.ranks))


def _dh0_of_the_first_rank(pullback: Pullback, x: Inputs, cotangents: Outputs, setting: Setting) -> Gradients:
    own = jnp.arange(x.v.shape[1]) < x.v.shape[1] // setting.ranks
    first = Outputs(jnp.where(own[:, None, None], cotangents.o, 0), jnp.zeros_like(cotangents.final_state))
    return pullback(x, cotangents)._replace(dh0=pullback(x, first).dh0)


def _initial_state_forgotten(pullback: Pullback, x: Inputs, cotangents: Outputs, setting: Setting) -> Gradients:
    return pullback(x._replace(h0=jnp.zeros_like(x.h0)), cotangents)


def _gate_of_head_0(pullback: Pullback, x: Inputs, cotangents: Outputs, setting: Setting) -> Gradients:
    wrong = pullback(x._replace(g=jnp.broadcast_to(x.g[..., :1], x.g.shape)), cotangents)
    return pullback(x, cotangents)._replace(dg=wrong.dg)


def _of_value_heads(pullback: Pullback, x: Inputs, cotangents: Outputs) -> Gradients:
    """Gradients in which each value head has a dq and dk of its own."""
    group = x.v.shape[2] // x.k.shape[2]
    return pullback(x._replace(q=jnp.repeat(x.q, group, axis=2), k=jnp.repeat(x.k, group, axis=2)), cotangents)


def _dk_of_one_head(pullback: Pullback, x: Inputs, cotangents: Outputs, setting: Setting) -> Gradients:
    group = x.v.shape[2] // x.k.shape[2]
    alone = _of_value_heads(pullback, x, cotangents)
    return pullback(x, cotangents)._replace(dk=alone.dk[:, :, ::group])


def _dbeta_by_division(pullback: Pullback, x: Inputs, cotangents: Outputs, setting: Setting) -> Gradients:
    """Per token and value head `<dk, k> - 2 beta dbeta + <dv, v> = 0`."""
    alone = _of_value_heads(pullback, x, cotangents)
    k = jnp.repeat(x.k, x.v.shape[2] // x.k.shape[2], axis=2)
    dbeta = (jnp.sum(alone.dk * k, axis=-1) + jnp.sum(alone.dv * x.v, axis=-1)) / (2 * x.beta)
    return pullback(x, cotangents)._replace(dbeta=dbeta.astype(x.beta.dtype))


def _without_last_head(x: Array) -> Array:
    return x.at[:, :, -1].set(0.0)


def _zero_at_chunk_starts(pullback: Pullback, x: Inputs, cotangents: Outputs, setting: Setting) -> Gradients:
    tokens = x.v.shape[1] // setting.ranks
    within = (jnp.arange(x.v.shape[1]) % tokens) % setting.chunk_size
    right = pullback(x, cotangents)
    return right._replace(dbeta=jnp.where((within == 0)[:, None], 0, right.dbeta))


COTANGENTS = (
    _wrong(
        "final_state_cotangent_dropped",
        "the cotangent of the final state is dropped",
        "dh0",
        _no_final_state_cotangent,
        "long_memory",
        "correlated_keys",
        right=("dq",),
    ),
    _wrong(
        "final_state_cotangent_of_every_rank",
        "the cotangent of the final state is counted once for each rank",
        "dh0",
        _final_state_cotangent_of_every_rank,
        "long_memory",
        ranks=4,
    ),
    _wrong(
        "initial_state_forgotten_backward",
        "the backward recomputes states from zero, without the initial state",
        "dk",
        _initial_state_forgotten,
        right=("dv", "dh0"),
        source="fla #822",
    ),
)

OF_THE_STATE = (
    _wrong(
        "dh0_dropped",
        "dh0 is zero",
        "dh0",
        _changed(lambda d, x: d._replace(dh0=jnp.zeros_like(d.dh0))),
        right=("dq", "dk", "dv", "dg", "dbeta"),
    ),
    _wrong(
        "dh0_of_the_first_rank",
        "dh0 is the first rank's share, not the sum over ranks",
        "dh0",
        _dh0_of_the_first_rank,
        "long_memory",
        "zero_keys",
        ranks=4,
        right=("dq", "dk", "dv", "dg", "dbeta"),
    ),
)

OF_GATES = (
    _wrong(
        "dg_of_head_0",
        "dg is computed with head 0's gate",
        "dg",
        _gate_of_head_0,
        right=("dq", "dk", "dv", "dbeta", "dh0"),
        source="fla #781",
    ),
    _wrong(
        "dg_of_the_decay",
        "dg is the gradient of exp(g), not of g",
        "dg",
        _changed(lambda d, x: d._replace(dg=d.dg * jnp.exp(-x.g))),
        right=("dq", "dk", "dv", "dbeta", "dh0"),
    ),
    _wrong(
        "dg_a_token_late",
        "dg stands one token late: its reverse sum is exclusive",
        "dg",
        _changed(lambda d, x: d._replace(dg=jnp.roll(d.dg, -1, axis=1))),
        right=("dq", "dk", "dv", "dbeta", "dh0"),
    ),
    _wrong(
        "dg_without_last_head",
        "dg of the last head stays zero",
        "dg",
        _changed(lambda d, x: d._replace(dg=_without_last_head(d.dg))),
        right=("dq", "dk", "dv", "dbeta", "dh0"),
    ),
    _wrong(
        "dbeta_by_division",
        "dbeta is divided by beta, which may be zero",
        "dbeta",
        _dbeta_by_division,
        "long_memory",
        right=("dq", "dk", "dv", "dg", "dh0"),
        source="attention-gym #475",
    ),
    _wrong(
        "dbeta_missing_at_chunk_starts",
        "dbeta stays zero at the first token of each chunk",
        "dbeta",
        _zero_at_chunk_starts,
        right=("dq", "dk", "dv", "dg", "dh0"),
    ),
)

OF_TOKENS = (
    _wrong(
        "dq_without_scale",
        "dq lacks the scale",
        "dq",
        _changed(lambda d, x: d._replace(dq=d.dq * x.k.shape[-1] ** 0.5)),
        right=("dk", "dv", "dg", "dbeta", "dh0"),
    ),
    _wrong(
        "dk_of_one_head",
        "dk is that of the group's first value head, not the sum over the group",
        "dk",
        _dk_of_one_head,
        right=("dq", "dv", "dg", "dbeta", "dh0"),
    ),
    _wrong(
        "dv_of_row_0",
        "dv of batch row 0 is returned in every row",
        "dv",
        _changed(lambda d, x: d._replace(dv=jnp.broadcast_to(d.dv[:1], d.dv.shape))),
        right=("dq", "dk", "dg", "dbeta", "dh0"),
        source="unsloth-zoo #776",
    ),
    _wrong(
        "dq_and_dk_swapped",
        "dq and dk are returned in each other's place",
        "dk",
        _changed(lambda d, x: d._replace(dq=d.dk, dk=d.dq)),
        right=("dv", "dg", "dbeta", "dh0"),
    ),
)

FAULTS = (*COTANGENTS, *OF_THE_STATE, *OF_GATES, *OF_TOKENS)
