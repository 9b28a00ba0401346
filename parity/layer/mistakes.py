"""The mistakes of the layer that must be seen, and that a failure is compared with."""

from collections.abc import Iterator, Mapping

from oracles.gated_delta_net import CONVOLVED, OUTPUTS, QUANTITIES
from parity.faults.edits import Edit
from parity.layer.mistake import CONV, HALO, LAYER, Mistake
from parity.layer.problem import STATES

CONV_STATES = tuple(name for name in OUTPUTS if "conv_state" in name)
# Of both norms, q and k are what lies behind.
BEHIND_L2 = ("dx", *(f"d{part}{name}" for name in ("q", "k") for part in ("", "conv_", "conv_state_")))
OF_THE_FINAL_CONV_STATE = ("dx", "dq", "dk", "dv")


def but(*right: str) -> tuple[str, ...]:
    """All quantities but these."""
    return tuple(name for name in QUANTITIES if name not in right)


def _layer(name: str, cause: str, old: str, new: str, wrong: tuple[str, ...], **more: object) -> Mistake:
    return Mistake(name, cause, (Edit(LAYER, old, new),), wrong, **more)  # type: ignore[arg-type]


L2 = "x / jnp.sqrt(jnp.sum(x**2, axis=-1, keepdims=True) + EPSILON)"
RMS = "o / jnp.sqrt(jnp.mean(o**2, axis=-1, keepdims=True) + EPSILON)"
GATED = "weight * normalised * jax.nn.silu(z)"
G = "-jnp.exp(A_log) * jax.nn.softplus(a + dt_bias)"
RULE = "o, after = rule(q, k, v,"
BETA = "jax.nn.sigmoid(b)\n"
STATE = "of_last_document(tokens[:, x.shape[1] :]"


def _mistakes() -> Iterator[Mistake]:
    before_the_rule, behind_the_rule = but(*CONV_STATES), but(*STATES)

    # Of the norms
    yield Mistake(
        "gate_before_norm",
        "the output gate SiLU(z) is applied before the RMS norm",
        (
            Edit(LAYER, f"normalised = {RMS}", f"o = o * jax.nn.silu(z)\n    normalised = {RMS}"),
            Edit(LAYER, GATED, "weight * normalised"),
        ),
        behind_the_rule,
    )
    yield _layer("norm_without_weight", "the RMS norm lacks its weight", GATED, GATED[9:], behind_the_rule)
    yield _layer(
        "norm_weight_plus_one",
        "the RMS norm multiplies by 1 + weight",
        GATED,
        f"(1 + {GATED[:6]}){GATED[6:]}",
        but(*STATES, "dnorm"),
    )
    yield _layer(
        "norm_of_all_heads",
        "the RMS norm is over all heads together",
        RMS,
        RMS.replace("axis=-1", "axis=(-2, -1)"),
        behind_the_rule,
    )
    yield _layer(
        "rms_epsilon_outside_the_root",
        "the epsilon of the RMS norm stands outside the root",
        RMS,
        "o / (jnp.sqrt(jnp.mean(o**2, axis=-1, keepdims=True)) + EPSILON)",
        behind_the_rule,
    )
    yield _layer(
        "rms_epsilon_missing", "the RMS norm has no epsilon", RMS, RMS.replace(" + EPSILON", ""), behind_the_rule
    )
    yield _layer(
        "gate_is_a_sigmoid",
        "the output is gated by sigmoid(z), not by SiLU(z)",
        GATED,
        GATED.replace("silu", "sigmoid"),
        behind_the_rule,
    )
    yield _layer(
        "gate_from_v",
        "the output gate is the projection of v, not that of z",
        'projected["z"]))',
        'projected["v"]))',
        behind_the_rule,
    )
    yield _layer("l2_norm_missing", "keys and queries are not normalised", L2, "x", before_the_rule)
    yield _layer(
        "l2_norm_of_the_mean",
        "the L2 norm divides by the root of the mean, not of the sum",
        L2,
        L2.replace("sum", "mean"),
        before_the_rule,
    )
    yield _layer(
        "l2_epsilon_outside_the_root",
        "the epsilon of the L2 norm stands outside the root",
        L2,
        "x / (jnp.sqrt(jnp.sum(x**2, axis=-1, keepdims=True)) + EPSILON)",
        before_the_rule,
    )
    yield _layer(
        "l2_epsilon_differs_backward",
        "the L2 norm has the epsilon 1e-6 forward, and 1e-12 in its gradient",
        f"return {L2}",
        f"narrow = {L2.replace('EPSILON', '1e-12')}\n    return narrow + jax.lax.stop_gradient({L2} - narrow)",
        BEHIND_L2,
        regime="tiny_keys",
    )

    # Of the convolution and its state
    for name in CONVOLVED:
        yield _layer(
            f"silu_of_{name}_missing",
            f"{name} is not activated behind the convolution",
            "jax.nn.silu(y), state",
            f"(y if name == {name!r} else jax.nn.silu(y)), state",
            but(*CONV_STATES, *(("final_recurrent_state",) if name == "q" else ())),
        )
    yield Mistake(
        "taps_in_reverse",
        "the taps of the convolution are in reverse",
        (Edit(CONV, "weight[:, j] * read(j)", "weight[:, width - 1 - j] * read(j)"),),
        before_the_rule,
    )
    yield Mistake(
        "conv_state_off_by_one",
        "the final conv state is that of one token earlier",
        (Edit(CONV, STATE, STATE.replace("x.shape[1] :", "x.shape[1] - 1 : -1")),),
        (*CONV_STATES, *OF_THE_FINAL_CONV_STATE),
    )
    yield Mistake(
        "conv_state_in_reverse",
        "the final conv state has its last token first",
        (Edit(CONV, STATE, STATE.replace(" :]", " :][:, ::-1]")),),
        (*CONV_STATES, *OF_THE_FINAL_CONV_STATE),
    )
    yield _layer(
        "conv_state_ignored",
        "the convolution starts from zeros, not from the conv state",
        "conv_state[name])\n",
        "jnp.zeros_like(conv_state[name]))\n",
        before_the_rule,
    )
    yield _layer(
        "gradient_of_the_conv_state_dropped",
        "the cotangent of the final conv state goes nowhere",
        "jax.nn.silu(y), state",
        "jax.nn.silu(y), jax.lax.stop_gradient(state)",
        OF_THE_FINAL_CONV_STATE,
    )
    yield Mistake(
        "halo_zero",
        "ranks above 0 convolve their first tokens with zeros, not with the last tokens of the rank before",
        (
            Edit(
                HALO,
                "from_piece_before(tail.astype(x.dtype), axes, order)",
                "jnp.zeros_like(tail.astype(x.dtype))",
            ),
        ),
        but(*CONV_STATES, "dconv_state_q"),  # what reaches that comes from the first tokens' do
        ranks=4,
    )
    yield Mistake(
        "gradient_of_the_halo_stays",
        "what a halo's tokens are told backward does not reach the rank that sent them",
        (Edit(HALO, "sent.astype(accumulate)", "jax.lax.stop_gradient(sent).astype(accumulate)"),),
        OF_THE_FINAL_CONV_STATE,
        ranks=4,
    )

    # Of the gates and of the rule's arguments
    yield _layer(
        "exp_of_A_log_twice",
        "exp is applied twice to A_log",
        "-jnp.exp(A_log)",
        "-jnp.exp(jnp.exp(A_log))",
        before_the_rule,
    )
    yield _layer(
        "dt_bias_behind_softplus",
        "dt_bias is added behind the softplus, not before",
        "jax.nn.softplus(a + dt_bias)",
        "(jax.nn.softplus(a) + dt_bias)",
        before_the_rule,
    )
    yield _layer("dt_bias_missing", "dt_bias is left out", "softplus(a + dt_bias)", "softplus(a)", before_the_rule)
    yield _layer("beta_doubled", "beta is twice the sigmoid", BETA, "2 * " + BETA, before_the_rule)
    yield _layer(
        "recurrent_state_ignored",
        "the rule starts from zeros, not from the recurrent state",
        f"{RULE} g, beta, recurrent_state",
        f"{RULE} g, beta, jnp.zeros_like(recurrent_state)",
        before_the_rule,
    )
    yield _layer(
        "heads_tiled",
        "key heads are tiled over the value heads, not repeated",
        RULE,
        "o, after = rule(*(jnp.tile(y, (1, 1, v.shape[2] // y.shape[2], 1)) for y in (q, k)), v,",
        before_the_rule,
    )

    # Of padding
    yield _layer(
        "pads_smear",
        "padding takes up room in the window of the convolution",
        "convolution = partial(conv_of_real_tokens, mask=mask)",
        "pass",
        before_the_rule,
        padding="left",
    )
    yield _layer(
        "pads_decay_the_state",
        "padding has a decay of its own",
        "without_padding(g, mask), ",
        "g, ",
        before_the_rule,
        padding="middle",
    )
    yield _layer(
        "pads_have_a_document",
        "ids of padding count, so that it ends one document and begins another",
        "of_real_tokens(segment_ids, mask)\n",
        "segment_ids\n",
        before_the_rule,
        packing="in_chunks",
        padding="middle",
    )

    # Of precision
    in_bf16 = "jax.lax.reduce_precision({}, 8, 7)".format
    yield _layer("g_in_bf16", "g is rounded to bf16", G, in_bf16(G), before_the_rule, dtype="f32")
    yield _layer(
        "beta_in_bf16",
        "beta is rounded to bf16",
        BETA,
        in_bf16(BETA.strip()) + "\n",
        before_the_rule,
        dtype="f32",
    )
    yield _layer(
        "logits_in_bf16",
        "the logits of the gates are rounded to bf16",
        'gates(projected["a"], projected["b"],',
        "gates(" + ", ".join(in_bf16(f'projected["{name}"]') for name in "ab") + ",",
        (*before_the_rule, "db"),
        dtype="f32",
    )


MISTAKES: Mapping[str, Mistake] = {mistake.name: mistake for mistake in _mistakes()}
