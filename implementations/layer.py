"""The GatedDeltaNet layer of Qwen3-Next and Qwen3.5, around any implementation of the gated delta rule::

    q', k', v', z = x projected                             q, k, v = SiLU(causal_conv(q', k', v'))
    g    = -exp(A_log) softplus(x a + dt_bias)              beta    = sigmoid(x b)
    o    = rule(l2(q), l2(k), v, g, beta)                   l2(y)   = y / sqrt(sum(y^2) + 1e-6)
    y    = (norm * o / sqrt(mean(o^2) + 1e-6) * SiLU(z)) projected by out

after Yang et al., "Gated Delta Networks" (2024), with the convolution, the norms and their epsilons of Qwen3-Next. q, k
and v are projected and convolved each on its own, so that their heads may lie on several devices.

The model's dtype is that of x, of the weights of projections and convolutions, and of the convolution's state. Sums,
logits, gates, norms, A_log, dt_bias and the recurrent state are in f32, or in f64 with a model in f64. A model in bf16
rounds to bf16, and nowhere else:

- q', k', v' and z, once projected: the first three are the convolution's state. The convolution is of these, in f32;
- q, k and v as the rule gets them;
- o, which the rule returns in the dtype of v;
- y.

A cotangent is rounded where its value was, and that of a weight once.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from implementations.arithmetic import accumulation_dtype, einsum
from implementations.causal_conv import causal_conv
from implementations.context_parallel.ranks import are_manual
from implementations.layer_padding import conv_of_real_tokens, of_real_tokens, without_padding
from implementations.layer_sizes import CONV_STATE, PARAMETERS, WIDE, parameters_like, sizes_of, states_like
from implementations.segments import check_segment_ids

Parameters = Mapping[str, Array]
ConvState = Mapping[str, Array]
Rule = Callable[..., tuple[Array, Array]]
Convolution = Callable[..., tuple[Array, Array]]
ReadOut = Callable[[Array, Array], Array]

EPSILON = 1e-6  # inside the square root of both norms
DTYPES = ("float64", "float32", "bfloat16")


def read_out(o: Float[Array, "B T Hv V"], weight: Float[Array, "Hv V D"]) -> Float[Array, "B T D"]:
    """The output projection, a sum over the heads."""
    return einsum("bthv,hvd->btd", o, weight)


def gated_delta_net(
    parameters: Parameters,
    x: Float[Array, "B T D"],
    conv_state: ConvState,
    recurrent_state: Float[Array, "B Hv K V"],
    *,
    rule: Rule,
    convolution: Convolution = causal_conv,
    segment_ids: Int[Array, "B T"] | None = None,
    mask: Bool[Array, "B T"] | None = None,
    read_out: ReadOut = read_out,
) -> tuple[Float[Array, "B T D"], dict[str, Array], Float[Array, "B Hv K V"]]:
    """`(y, conv_state, recurrent_state)`: y in the dtype of x, and both states after the last token.

    - `parameters`: as `layer_sizes.parameters_like` has them.
    - `conv_state`: "q" and "k" `[B, W-1, Hk, K]`, "v" `[B, W-1, Hv, V]`: the W - 1 projected tokens before x, before
      convolution and SiLU, the last row just before token 0. Zeros where there are none (`layer_sizes.zero_states`).
    - `rule(q, k, v, g, beta, recurrent_state) -> (o, recurrent_state)`: a call under `contract`, all else bound.
    - `convolution(x [B, T, D], weight [D, W], initial_state [B, W-1, D]) -> (y, final_state)`: with all three in the
      dtype that sums are kept in.
    - `segment_ids`: of documents that are packed into a row. Where given, both get it as a keyword.
    - `mask`: False for padding, wherever it lies (`implementations.layer_padding`). x may hold anything there, NaN too,
      and y is 0; ids of padding count for nothing. The rule gets zeros there, for g and beta too, and no mask.
    - `read_out(o [B, T, Hv, V], weight [Hv, V, D]) -> y`: the output projection, where heads lie on several devices.

    Raises ValueError as `check_inputs`, `check_convolution` and `check_mask`, as rule and convolution do, and where the
    rule returns other shapes.
    """
    check_inputs(parameters, x, conv_state, recurrent_state, segment_ids)
    check_convolution(rule, convolution)
    if mask is not None:
        check_mask(mask, x, convolution)
        convolution = partial(conv_of_real_tokens, mask=mask)
        x = without_padding(x, mask)  # before anything that is not linear
        segment_ids = None if segment_ids is None else of_real_tokens(segment_ids, mask)
    documents = {} if segment_ids is None else {"segment_ids": segment_ids}
    # Widened once, so that what the projections send back to a token is added before it is rounded.
    wide = x.astype(accumulation_dtype(x.dtype))
    projected = {name: project(wide, parameters[name]) for name in ("q", "k", "v", "z", "a", "b")}
    g, beta = gates(projected["a"], projected["b"], parameters["A_log"], parameters["dt_bias"])
    g, beta = without_padding(g, mask), without_padding(beta, mask)

    convolved, conv_state_after = {}, {}
    for name in CONV_STATE:
        tokens = rounded(projected[name], x.dtype)
        y, state = convolve(partial(convolution, **documents), tokens, parameters[f"conv_{name}"], conv_state[name])
        convolved[name], conv_state_after[name] = jax.nn.silu(y), state
    q, k, v = l2_normalised(convolved["q"]), l2_normalised(convolved["k"]), convolved["v"]
    q, k, v = (rounded(y, x.dtype).astype(x.dtype) for y in (q, k, v))

    o, after = rule(q, k, v, g, beta, recurrent_state, **documents)
    if o.shape != v.shape or after.shape != recurrent_state.shape:
        raise ValueError(
            f"the rule must return o like v {v.shape} and a state like {recurrent_state.shape}; "
            f"it returned {o.shape} and {after.shape}"
        )
    o, z = (rounded(y.astype(wide.dtype), x.dtype) for y in (o, projected["z"]))
    y = read_out(gated_rms_norm(o, z, parameters["norm"]), parameters["out"].astype(wide.dtype))
    return without_padding(y.astype(x.dtype), mask), conv_state_after, after


def project(x: Float[Array, "B T D"], weight: Float[Array, "D *heads"]) -> Float[Array, "B T *heads"]:
    """In the dtype of x, which is wide: logits must not be rounded before they are gates."""
    return einsum("btd,d...->bt...", x, weight.astype(x.dtype))


def rounded(x: Float[Array, "*shape"], dtype: Any) -> Float[Array, "*shape"]:
    """x as `dtype` has it, in the dtype of x.

    XLA may drop a conversion to bf16 and back. A token would be another in the state than in the convolution, and
    decoding would not repeat prefill: `reduce_precision` is what XLA has to keep.
    """
    if x.dtype == dtype:
        return x
    narrow = jnp.finfo(dtype)
    return jax.lax.reduce_precision(x, narrow.nexp, narrow.nmant)


def convolve(
    convolution: Convolution,
    x: Float[Array, "B T H K"],
    weight: Float[Array, "H K W"],
    initial_state: Float[Array, "B W-1 H K"],
) -> tuple[Float[Array, "B T H K"], Float[Array, "B W-1 H K"]]:
    """The convolution of each channel of each head, in the dtype of x; `final_state` in that of `initial_state`."""
    batch, tokens, heads, size = x.shape
    before, channels = initial_state.shape[1], heads * size
    y, final_state = convolution(
        x.reshape(batch, tokens, channels),
        weight.reshape(channels, -1).astype(x.dtype),
        initial_state.reshape(batch, before, channels).astype(x.dtype),
    )
    return y.reshape(x.shape), final_state.reshape(initial_state.shape).astype(initial_state.dtype)


def gates(
    a: Float[Array, "B T Hv"], b: Float[Array, "B T Hv"], A_log: Float[Array, " Hv"], dt_bias: Float[Array, " Hv"]
) -> tuple[Float[Array, "B T Hv"], Float[Array, "B T Hv"]]:
    """`(g, beta)` of the logits: g is the log decay, beta the write strength."""
    return -jnp.exp(A_log) * jax.nn.softplus(a + dt_bias), jax.nn.sigmoid(b)


def l2_normalised(x: Float[Array, "... K"]) -> Float[Array, "... K"]:
    """Of each head; finite, with a finite gradient, where it is 0."""
    return x / jnp.sqrt(jnp.sum(x**2, axis=-1, keepdims=True) + EPSILON)


def gated_rms_norm(
    o: Float[Array, "B T Hv V"], z: Float[Array, "B T Hv V"], weight: Float[Array, " V"]
) -> Float[Array, "B T Hv V"]:
    """The RMS norm of each head, and then the gate."""
    normalised = o / jnp.sqrt(jnp.mean(o**2, axis=-1, keepdims=True) + EPSILON)
    return weight * normalised * jax.nn.silu(z)


def check_inputs(
    parameters: Parameters, x: Array, conv_state: ConvState, recurrent_state: Array, segment_ids: Array | None = None
) -> None:
    """Raise ValueError unless names, shapes and dtypes fit together: those of `parameters_like` and `states_like`, with
    A_log, dt_bias, norm and the recurrent state in f32 or wider, and integer `segment_ids [B, T]`.
    """
    for what, tree in (("parameters", parameters), ("conv_state", conv_state)):
        if not isinstance(tree, Mapping):
            raise ValueError(f"{what} must be a mapping from names to arrays; got {type(tree).__name__}")
    _check_names("parameters", parameters, PARAMETERS)
    _check_names("conv_state", conv_state, CONV_STATE)
    sizes = sizes_of(parameters)
    if x.ndim != 3 or x.shape[2] != sizes.D or not x.size:
        raise ValueError(f"x must be [B, T, D = {sizes.D}], B and T at least 1; got {x.shape}")
    if x.dtype not in DTYPES:
        raise ValueError(f"x must be one of {DTYPES}; got {x.dtype}")
    wanted_conv_state, wanted_recurrent_state = states_like(sizes, x.shape[0], x.dtype)
    for name, wanted in parameters_like(sizes, x.dtype).items():
        _check_array(f"parameter {name!r}", parameters[name], wanted, x, or_wider=name in WIDE)
    for name, wanted in wanted_conv_state.items():
        _check_array(f"conv_state {name!r}", conv_state[name], wanted, x)
    _check_array("recurrent_state", recurrent_state, wanted_recurrent_state, x, or_wider=True)
    check_segment_ids(segment_ids, *x.shape[:2])


def check_convolution(rule: Rule, convolution: Convolution) -> None:
    """Raise ValueError where the rule is one over ranks whose axes are manual already, and the convolution sees the
    tokens of its own rank alone.
    """
    axes = rule.keywords.get("axes") if isinstance(rule, partial) else None
    if axes and convolution is causal_conv and are_manual(axes):
        raise ValueError(
            f"where the axes {axes} are manual already each rank has its own tokens, and causal_conv would convolve "
            f"the first of each with the initial state: use halo_conv, with mesh and axes bound, and without a mask"
        )


def check_mask(mask: Array, x: Array, convolution: Convolution) -> None:
    """Raise ValueError unless the mask is a bool for each token, and the convolution is the one it is known for."""
    if not hasattr(mask, "dtype") or mask.shape != x.shape[:2] or mask.dtype != bool:
        raise ValueError(
            f"mask must be bool [B, T] = {x.shape[:2]}, True for real tokens; got "
            f"{f'{mask.dtype} {mask.shape}' if hasattr(mask, 'dtype') else repr(mask)}"
        )
    if convolution is not causal_conv:
        raise ValueError(
            "with a mask the convolution must be causal_conv, that of one device, for a window reaches over padding "
            f"wherever it lies; got {convolution}: over ranks put padding behind the tokens and leave the mask out (no "
            "y of a real token changes, and both final states do), or pack documents, with segment_ids"
        )


def _check_names(what: str, tree: Mapping[str, Any], wanted: Collection[str]) -> None:
    missing, unknown = [name for name in wanted if name not in tree], [name for name in tree if name not in wanted]
    if missing or unknown:
        raise ValueError(f"{what} must have the names {list(wanted)}; missing are {missing}, unknown are {unknown}")


def _check_array(what: str, array: Array, wanted: jax.ShapeDtypeStruct, x: Array, *, or_wider: bool = False) -> None:
    if not hasattr(array, "dtype"):
        raise ValueError(f"{what} must be an array of shape {wanted.shape}; got {type(array).__name__}")
    if array.shape != wanted.shape:
        raise ValueError(
            f"with x {x.shape} and the other parameters, {what} must have shape {wanted.shape}; got {array.shape}"
        )
    fits = jnp.promote_types(array.dtype, wanted.dtype) == array.dtype if or_wider else array.dtype == wanted.dtype
    if not fits:
        raise ValueError(
            f"with x in {x.dtype}, {what} must be {wanted.dtype}{' or wider' * or_wider}; got {array.dtype}: cast it"
        )
