"""A small hybrid language model, one cycle of Qwen3-Next: three GatedDeltaNet layers and one of full causal attention.

Each layer is `x + mixer(norm(x))`, and then `x + mlp(norm(x))` with a SwiGLU; an embedding in front, a norm and a
read-out behind. No rotary positions and no experts: what these do is done to each token by itself.

Sums, norms, logits and the softmax are in the dtype of the parameters, which is f32 or f64.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from implementations.arithmetic import einsum
from implementations.layer_sizes import PARAMETERS, sizes_of, zero_states

Parameters = Mapping[str, Any]

LINEAR_LAYERS = 3  # and then one of full attention
EPSILON = 1e-6


# `linear_attention(parameters, x, layer) -> y`, x and y `[B, T, D]`, and `pin(x, place, layer) -> x`, x `[B, T, ...]`
# as it should lie on a mesh. Where layers are scanned their number is traced.
LinearAttention = Callable[..., Array]
Pin = Callable[..., Array]


def unpinned(x: Array, place: str, layer: Any) -> Array:
    return x


def loss(
    parameters: Parameters,
    tokens: Int[Array, "B T"],
    targets: Int[Array, "B T"],
    *,
    linear_attention: LinearAttention,
    pin: Pin = unpinned,
) -> Float[Array, ""]:
    """The mean cross-entropy of `targets`, in nats. Tokens and targets are in the vocabulary: one that is not is taken
    for no word at all, for what is traced cannot be looked at.

    `parameters` are a tree: "embedding" `[vocabulary, D]`, "linear" (a layer, stacked over `LINEAR_LAYERS`), "full" (a
    layer), "norm" `[D]`, "readout" `[D, vocabulary]`. A layer has "norm" and "mlp_norm" `[D]`, "mixer" (of a linear
    layer what `linear_attention` takes, else "q", "k", "v" `[D, H, K]` and "out" `[H, K, D]`) and "mlp": "gate" and
    "up" `[D, F]`, "down" `[F, D]`. `pin` is asked at every place where a layer hands on what is of tokens.
    """
    logits = read_out(parameters, tokens, linear_attention=linear_attention, pin=pin)
    wanted = jnp.sum(logits * one_hot(targets, parameters["embedding"]), axis=-1)
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - wanted)


def read_out(
    parameters: Parameters, tokens: Int[Array, "B T"], *, linear_attention: LinearAttention, pin: Pin = unpinned
) -> Float[Array, "B T vocabulary"]:
    """The logits of every token's successor."""
    x = pin(einsum("btw,wd->btd", one_hot(tokens, parameters["embedding"]), parameters["embedding"]), "embedded", -1)

    def linear_layer(x: Array, layer: tuple[Parameters, Array]) -> tuple[Array, None]:
        of_layer, number = layer
        return block(of_layer, x, partial(linear_attention, layer=number), partial(pin, layer=number)), None

    x, _ = jax.lax.scan(linear_layer, x, (parameters["linear"], jnp.arange(LINEAR_LAYERS)))
    here = partial(pin, layer=LINEAR_LAYERS)
    x = block(parameters["full"], x, partial(causal_attention, pin=here), here)
    return here(einsum("btd,dw->btw", rms_norm(x, parameters["norm"]), parameters["readout"]), "logits")


def block(parameters: Parameters, x: Float[Array, "B T D"], mixer: Any, pin: Any) -> Float[Array, "B T D"]:
    """One layer around its mixer."""
    normed = pin(rms_norm(x, parameters["norm"]), "normed")
    x = pin(x + pin(mixer(parameters["mixer"], normed), "mixed"), "between")
    normed = pin(rms_norm(x, parameters["mlp_norm"]), "normed for the mlp")
    return pin(x + pin(mlp(parameters["mlp"], normed, pin), "of the mlp"), "after")


def with_trained_state(net: Callable[..., tuple[Array, Any, Array]]) -> LinearAttention:
    """`net(parameters, x, conv_state, recurrent_state)`, which is `layer.gated_delta_net` or `layer_on_mesh` with all
    else bound, from a state of the layer's own.

    Its parameters are those of the layer, and "initial_state" `[Hv, K, V]`, a trained state that enters every row.
    (From zeros the read of token 0 is a multiple of its v, which the gated norm makes a matter of the sign of q . k.)
    """

    def linear_attention(parameters: Parameters, x: Array, layer: Any) -> Array:
        of_layer = {name: parameters[name] for name in PARAMETERS}
        conv_state, like = zero_states(sizes_of(of_layer), x.shape[0], x.dtype)
        entering = jnp.broadcast_to(parameters["initial_state"], like.shape)
        return net(of_layer, x, conv_state, entering)[0]

    return linear_attention


def causal_attention(parameters: Parameters, x: Float[Array, "B T D"], *, pin: Any) -> Float[Array, "B T D"]:
    """Softmax attention of each token to itself and those before it.

    Where T lies over ranks the queries stay there, and keys and values are gathered, by XLA or by a `pin`.
    """
    q, k, v = (pin(einsum("btd,dhk->bthk", x, parameters[name]), name) for name in ("q", "k", "v"))
    scores = einsum("bthk,bshk->bths", q, k) * q.shape[-1] ** -0.5
    token = jnp.arange(x.shape[1])
    before = token[:, None] >= token
    weights = jax.nn.softmax(jnp.where(before[:, None], scores, -jnp.inf), axis=-1)
    o = pin(einsum("bths,bshk->bthk", weights, v), "attended")
    return einsum("bthk,hkd->btd", o, parameters["out"])


def mlp(parameters: Parameters, x: Float[Array, "B T D"], pin: Any) -> Float[Array, "B T D"]:
    gate, up = (einsum("btd,df->btf", x, parameters[name]) for name in ("gate", "up"))
    return einsum("btf,fd->btd", pin(jax.nn.silu(gate) * up, "hidden"), parameters["down"])


def rms_norm(x: Float[Array, "B T D"], weight: Float[Array, " D"]) -> Float[Array, "B T D"]:
    return weight * x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + EPSILON)


def one_hot(tokens: Int[Array, "B T"], embedding: Float[Array, "vocabulary D"]) -> Float[Array, "B T vocabulary"]:
    """A product with this is a look-up, whose layout jax infers, and whose gradient is a sum in a fixed order."""
    return jax.nn.one_hot(tokens, embedding.shape[0], dtype=embedding.dtype)
