"""Mistakes of precision alone."""

from parity.faults.edits import Edit
from parity.faults.elsewhere import text as at
from parity.faults.elsewhere.text import in_the_map, text

_IN_BF16 = "def _in_bf16(x: Array) -> Array:\n    return x.astype(jnp.bfloat16).astype(x.dtype)\n\n\n"
_WITH_BF16 = text(at.MATMUL, _IN_BF16 + at.MATMUL)


def _state_in(dtype: str) -> tuple[Edit]:
    return (text(at.NEW, f"h = h.astype(jnp.{dtype}).astype(h.dtype)\n        {at.NEW}"),)


EDITS = {
    "accumulation_in_f32": (text(at.WIDE, "wide = jnp.dtype(jnp.float32)"),),
    "products_in_one_bf16_pass": (
        text(
            at.MATMUL,
            _IN_BF16 + "def _matmul(x: Array, y: Array) -> Array:\n"
            "    return jnp.matmul(_in_bf16(x), _in_bf16(y), precision=jax.lax.Precision.HIGHEST)\n",
        ),
    ),
    "inverse_in_one_bf16_pass": (
        _WITH_BF16,
        text(
            at.T,
            "T, power = jnp.eye(chunk_size, dtype=wide) - S, -S\n"
            "    for _ in range(chunk_size.bit_length() - 2):\n"
            "        power = product(_in_bf16(power), _in_bf16(power))\n"
            "        T = T + product(_in_bf16(T), _in_bf16(power))",
        ),
    ),
    "state_in_bf16": _state_in("bfloat16"),
    "state_in_fp16": _state_in("float16"),
    "cumulative_gate_in_bf16": (
        text(at.G, at.G.replace("g.astype(wide)", "g.astype(jnp.bfloat16)").replace("\n", ".astype(wide)\n")),
    ),
    "gradients_accumulated_in_bf16": (
        text(
            at.NEW,
            "narrow = h.astype(jnp.bfloat16).astype(h.dtype)\n"
            f"        h = narrow + jax.lax.stop_gradient(h - narrow)\n        {at.NEW}",
        ),
    ),
    "exchange_in_bf16": (
        text(
            at.GATHER,
            "gathered = jax.lax.all_gather((A.astype(jnp.bfloat16), B.astype(jnp.bfloat16)), axes)\n"
            "        A_of, B_of = (x.astype(h0.dtype) for x in gathered)",
        ),
    ),
    "transition_in_bf16": (_WITH_BF16, text(at.GATHER, at.GATHER.replace("(A, B)", "(_in_bf16(A), B)"))),
    "fold_in_bf16": (
        _WITH_BF16,
        *in_the_map(at.H.strip(), f"h = _in_bf16({at.H.strip().removeprefix('h = ')})"),
    ),
}
