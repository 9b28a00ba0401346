"""Faults at a ragged tail: T, or a rank's part of it, is not a multiple of the chunk."""

from functools import partial

from parity.faults.chunk import ATTENTION
from parity.faults.edits import Edit
from parity.faults.fault import Fault

_chunked = partial(Edit, "implementations.chunked")

PAD = "x = jnp.pad(x, ((0, 0), (0, chunks * chunk_size - tokens), *((0, 0) for _ in x.shape[2:])))"
SPLIT = "q, k, v, g, beta = (_split(x, chunk_size) for x in (q, k, v, g, beta))"
_GATED = f"{SPLIT}\n    g = g - (1 - _split(jnp.ones_like(tail), chunk_size))"
_REMEMBER_GATES = "q, k = repeat_heads(q, v.shape[2]), repeat_heads(k, v.shape[2])"


def _wrong(name: str, cause: str, *edits: Edit, quantity: str = "final_state", **rest: object) -> Fault:
    where = {"regimes": ("long_memory", "zero_keys")} | rest
    return Fault(name, cause, "padding", quantity, edits=edits, **where)  # type: ignore[arg-type]


def padded_with(**values: str) -> tuple[Edit, ...]:
    """Padded tokens hold these values (expressions) and zeros elsewhere."""
    lines = [
        f"{x} = {x} + (1 - real.reshape(real.shape + (1,) * ({x}.ndim - real.ndim))) * {value}"
        for x, value in values.items()
    ]
    remembered = f"{_REMEMBER_GATES}\n    real = _split(jnp.ones_like(g), chunk_size)"
    return (_chunked(_REMEMBER_GATES, remembered), _chunked(SPLIT, "\n    ".join([SPLIT, *lines])))


GATED_PADS = padded_with(g="-1.0")

FAULTS = (
    _wrong(
        "pads_repeat_the_last_token",
        "a ragged tail is padded by repeating its last token",
        _chunked(PAD, f'{PAD[:-1]}, mode="edge")'),
        right=("o",),
    ),
    _wrong(
        "pads_decay_the_state",
        "padded tokens decay the state",
        *GATED_PADS,
        right=("o",),
    ),
    _wrong(
        "pads_of_a_rank_decay_the_state",
        "padded tokens of a rank decay the state that it hands over",
        *GATED_PADS,
        quantity="o",
        ranks=4,
        first_bad_rank=1,
    ),
    _wrong(
        "pads_erase",
        "padded tokens have keys and beta 1: they erase what the state holds under those keys",
        *padded_with(k="0.25", beta="1.0"),
        right=("o",),
    ),
    _wrong(
        "pads_write",
        "padded tokens have keys, values and beta 1: they write",
        *padded_with(k="0.25", v="1.0", beta="1.0"),
        right=("o",),
    ),
    _wrong(
        "chunk_decay_read_at_a_pad",
        "the last chunk's decay is read at a padded position, where none was stored",
        *(
            _chunked(_REMEMBER_GATES, f"{_REMEMBER_GATES}\n    is_ragged = v.shape[1] % chunk_size != 0"),
            _chunked("decay=jnp.exp(G[..., -1])", "decay=jnp.exp(G[..., -1]).at[-1].set(1.0)"),
        ),
        regimes=("long_memory", "mixed_gates"),
        right=("o",),
    ),
    _wrong(
        "pads_in_front",
        "a ragged tail is padded in front, and cut off behind",
        _chunked("(0, chunks * chunk_size - tokens)", "(chunks * chunk_size - tokens, 0)"),
        quantity="o",
        right=("final_state",),
    ),
    _wrong(
        "tail_not_in_final_state",
        "the final state is that before the ragged tail",
        _chunked(
            "final_state, o = walk(initial_state.astype(factors.u.dtype), factors)",
            "h0, whole = initial_state.astype(factors.u.dtype), jax.tree.map(lambda x: x[:-1], factors)\n"
            "    final_state, o = walk(h0, whole)[0], walk(h0, factors)[1]",
        ),
        right=("o",),
    ),
    _wrong(
        "tail_output_missing",
        "the outputs of the ragged tail stay zero",
        _chunked("return join(o, v.shape[1])", "return join(o.at[-1].set(0.0), v.shape[1])"),
        quantity="o",
        right=("final_state",),
    ),
    _wrong(
        "zero_times_infinity_at_pads",
        "padded rows of Q K^T are multiplied by e^-G before they are masked: 0 times infinity",
        *(
            _chunked(_REMEMBER_GATES, f"{_REMEMBER_GATES}\n    real = _split(jnp.ones_like(g), chunk_size)"),
            _chunked(
                ATTENTION,
                f"{ATTENTION.removesuffix(' * D')} * jnp.tril(jnp.where(real[..., :, None] > 0, D, "
                "jnp.exp(-G)[..., None, :]))",
            ),
        ),
        quantity="dk",
        regimes=("strong_decay",),
        dtype="f32",
        right=("o", "final_state"),
        source="fla #792",
    ),
)
