"""The layer in NumPy float64, vectorised over batch rows and heads, with the adjoint of every part by hand."""

from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from oracles.conditioning import decay_gradient_terms
from oracles.gated_delta_net import CONVOLVED, PARAMETERS, PROJECTIONS, check_cotangents, check_inputs
from oracles.gated_delta_net.parts import (
    Perturb,
    Pullback,
    as_it_is,
    convolution,
    log_decay,
    normalised,
    projection,
    silu,
    write_strength,
)
from oracles.gated_delta_rule import float64 as rule

Tokens = Float64[np.ndarray, "B T D"]
State = Float64[np.ndarray, "B Hv K V"]
Arrays = dict[str, Float64[np.ndarray, "..."]]
SegmentIds = Int[np.ndarray, "B T"] | None
IntoRule = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def forward(
    x: Tokens, parameters: Arrays, conv_state: Arrays, recurrent_state: State, *, segment_ids: SegmentIds = None
) -> tuple[Tokens, Arrays, State]:
    """`(y, final_conv_state, final_recurrent_state)`; shapes as in `oracles.gated_delta_net.shapes`.

    `parameters` has the keys `PARAMETERS`, `conv_state` the keys `CONVOLVED`. Raises ValueError on other keys, and on
    shapes that do not fit together.
    """
    check_inputs(x, parameters, conv_state, recurrent_state, segment_ids)
    documents = _documents(segment_ids)
    into_rule, z, final_conv_state, _ = _before(x, parameters, conv_state, documents, as_it_is)
    o, final_state = rule.forward(*into_rule, recurrent_state, **documents)
    y, _ = _after(o, z, parameters, as_it_is)
    return y, final_conv_state, final_state


def forward_and_adjoint(
    x: Tokens,
    parameters: Arrays,
    conv_state: Arrays,
    recurrent_state: State,
    dy: Tokens,
    dfinal_conv_state: Arrays,
    dfinal_recurrent_state: State,
    *,
    segment_ids: SegmentIds = None,
    perturb: Perturb = as_it_is,
    chunk_size: int = 64,
) -> tuple[Tokens, Arrays, State, Tokens, Arrays, Arrays, State]:
    """The results of `forward`, and `(dx, dparameters, dconv_state, drecurrent_state)` for cotangents of all three.

    `perturb(name, value)` stands where code in finite precision rounds: it is called once for every intermediate and
    every cotangent of one, and what it returns takes the value's place. The names are the same in every call.
    `chunk_size` is that of the code whose rounding is meant, and matters to nothing else: see `_log_decay_gradient`.
    Raises as `forward` does.
    """
    check_inputs(x, parameters, conv_state, recurrent_state, segment_ids)
    check_cotangents(x, conv_state, recurrent_state, dy, dfinal_conv_state, dfinal_recurrent_state)
    documents = _documents(segment_ids)
    into_rule, z, final_conv_state, back_before = _before(x, parameters, conv_state, documents, perturb)
    q, k, v, g, beta = into_rule
    # exp(g) is rounded as well, and where g is near 0 no relative change of g shows it.
    into_rule = q, k, v, g + np.log(perturb("decay", np.ones_like(g))), beta
    exact, final_state = rule.forward(*into_rule, recurrent_state, **documents)
    o = perturb("o", exact)
    y, back_after = _after(o, z, parameters, perturb)

    do, dz, dnorm, dout = back_after(dy)
    dq, dk, dv, dg, dbeta, drecurrent_state = rule.adjoint(
        *into_rule, recurrent_state, do, dfinal_recurrent_state, **documents
    )
    values = {"o": o, "do": do, "v": v, "dv": dv, "beta": beta, "dbeta": dbeta}
    dg = _log_decay_gradient(dg, values, chunk_size, perturb)
    dx, dparameters, dconv_state = back_before((dq, dk, dv, dg, dbeta), dz, dfinal_conv_state)
    dparameters |= {"norm": dnorm, "out": dout}
    in_order = {name: dparameters[name] for name in PARAMETERS}
    return y, final_conv_state, final_state, dx, in_order, dconv_state, drecurrent_state


def _before(
    x: Tokens, w: Arrays, conv_state: Arrays, documents: dict[str, Any], perturb: Perturb
) -> tuple[IntoRule, np.ndarray, Arrays, Pullback]:
    """`((qn, kn, vc, g, beta), z, final_conv_state, pullback)`: everything up to the rule."""
    projected, back = {}, {}
    for name in PROJECTIONS:
        projected[name], back["projected", name] = projection(name, x, w[name], perturb)
    active, final_conv_state = {}, {}
    for name in CONVOLVED:
        y, final_conv_state[name], back["convolved", name] = convolution(
            name, projected[name], w[f"conv_{name}"], conv_state[name], documents, perturb
        )
        active[name], back["silu", name] = silu(name, y, perturb)
    for name in ("q", "k"):
        active[name], back["normalised", name] = normalised(name, active[name], np.sum, perturb)
    g, back_g = log_decay(projected["a"], w["A_log"], w["dt_bias"], perturb)
    beta, back_beta = write_strength(projected["b"], perturb)

    def pullback(drule: IntoRule, dz: np.ndarray, dfinal_conv_state: Arrays) -> tuple[Tokens, Arrays, Arrays]:
        d = dict(zip(("q", "k", "v", "g", "beta"), drule, strict=True)) | {"z": dz}
        dw, dconv_state = {}, {}
        d["a"], dw["A_log"], dw["dt_bias"] = back_g(d["g"])
        d["b"] = back_beta(d["beta"])
        for name in ("q", "k"):
            d[name] = back["normalised", name](d[name])
        for name in CONVOLVED:
            d[name], dw[f"conv_{name}"], dconv_state[name] = back["convolved", name](
                back["silu", name](d[name]), dfinal_conv_state[name]
            )
        dx = np.zeros_like(x)
        for name in PROJECTIONS:
            more, dw[name] = back["projected", name](d[name])
            dx += more
        return dx, dw, dconv_state

    return (active["q"], active["k"], active["v"], g, beta), projected["z"], final_conv_state, pullback


def _after(o: np.ndarray, z: np.ndarray, w: Arrays, perturb: Perturb) -> tuple[Tokens, Pullback]:
    """`y` of the rule's `o`: norm, gate and output projection; pulls back to `(do, dz, dnorm, dout)`."""
    n, back_norm = normalised("o", o, np.mean, perturb)
    gate, back_gate = silu("z", z, perturb)
    gated = perturb("gated", w["norm"] * n * gate)

    def pullback(dy: Tokens) -> tuple[np.ndarray, ...]:
        d = perturb("dgated", np.tensordot(dy, w["out"], (2, 2)))
        dz, do = back_gate(d * w["norm"] * n), back_norm(d * w["norm"] * gate)
        return perturb("do", do), dz, np.sum(d * n * gate, axis=(0, 1, 2)), np.tensordot(gated, dy, ((0, 1), (0, 1)))

    return np.tensordot(gated, w["out"], 2), pullback


def _log_decay_gradient(dg: np.ndarray, values: dict[str, np.ndarray], chunk_size: int, perturb: Perturb) -> np.ndarray:
    """dg, moved as the terms of its sum are in chunked code; see `oracles.conditioning.decay_gradient_terms`.

    The terms cancel, but for the change of each, which is in the sum of all tokens of the chunk up to its own: such
    errors of neighbours are alike, and add up in the gradients of A_log and dt_bias.
    """
    terms = decay_gradient_terms(values, values, window=1)
    change = perturb("terms of dg", terms) - terms
    moved = dg.copy()
    for ahead in range(min(chunk_size, dg.shape[1])):
        moved[:, : dg.shape[1] - ahead] += change[:, ahead:]
    return moved


def _documents(segment_ids: SegmentIds) -> dict[str, Any]:
    return {} if segment_ids is None else {"segment_ids": segment_ids}
