"""The lines of `parity.other_code.textbook` in which mistakes are made."""

from functools import partial

from parity.faults.edits import Edit

text = partial(Edit, "parity.other_code.textbook")

G = "G = jnp.cumsum(_chunks(g.astype(wide)[..., None], chunk_size), axis=-2)\n"
G_END = "    G_end = G[..., -1:, :]\n"
D = "D = jnp.exp(jnp.where(causal, G - G.mT, -jnp.inf))"
S = "S = jnp.tril(b * product(K, K.mT) * D, -1)"
T = "T = jnp.linalg.inv(jnp.eye(chunk_size, dtype=wide) + S)"
U = "u = product(T, b * V)"
W = "w = product(T, b * jnp.exp(G) * K)"
Q_FROM_START = "Q_from_start = jnp.exp(G) * Q\n"
K_TO_END = "K_to_end = jnp.exp(G_end - G) * K\n"
ATTENTION = "attention = product(Q, K.mT) * D"
NEW = "new = u - product(w, h)"
O = "        o = product(Q_from_start, h) + product(attention, new)\n"
H = "        h = jnp.exp(G_end) * h + product(K_to_end.mT, new)\n"

FACTORS = "(Q_from_start, K_to_end, attention, u, w, G_end))\n"
SCAN = "h, o = jax.lax.scan(chunk, initial_state.astype(wide), factors)\n"
OUTPUT = "_tokens(o, v.shape[1])"
PAD = "x = jnp.pad(x, ((0, 0), (0, missing), (0, 0), (0, 0)))"
WIDE = "wide = jnp.promote_types(v.dtype, jnp.float32)"
MATMUL = "_matmul = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)\n"

MAP = "_, end = rule(q, k, values, g, beta, jnp.concatenate([jnp.zeros_like(h0), identity], axis=-1))"
SPLIT = "B, A = jnp.split(end, [v.shape[-1]], axis=-1)"
GATHER = "A_of, B_of = jax.lax.all_gather((A, B), axes)"
START = "entering, state = jnp.zeros_like(h0), h0"
LOOP = "for other in range(ranks):"
ENTER = "            entering = jnp.where(rank == other, state, entering)\n"
NEXT = "            state = _matmul(A_of[other], state) + B_of[other]\n"
REPLAY = "o, _ = rule(q, k, v, g, beta, entering)"
RETURN = "        return o, state\n"

# The cumulative gate before each token's own.
BEFORE = text(G_END, f"{G_END}    G_before = jnp.pad(G, [(0, 0)] * 3 + [(1, 0), (0, 0)])[..., :-1, :]\n")

IN_THE_MAP = (
    text("    product: Product = _matmul,", "    product: Product = _matmul,\n    in_the_map: bool = False,"),
    text("_, end = rule(", "_, end = partial(rule, in_the_map=True)("),
)


def in_the_map(old: str, new: str) -> tuple[Edit, ...]:
    """`new` where a rank makes its map, `old` where it replays."""
    return (*IN_THE_MAP, text(f"{old}\n", f"if in_the_map:\n            {new}\n        else:\n            {old}\n"))


def replayed_from(entering: str) -> Edit:
    """A rank replays from `entering`, an expression."""
    return text(REPLAY, REPLAY.replace("entering", entering))


def stopped(line: str, part: str) -> tuple[Edit, ...]:
    """No gradient flows through `part` of a line."""
    return (text(line, line.replace(part, f"jax.lax.stop_gradient({part})")),)
