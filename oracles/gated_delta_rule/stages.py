"""The stages of the chunked, context-parallel form in NumPy float64: what an implementation computes on the way.

T tokens are split over R ranks, and those of a rank into N chunks of C, the last of which may be short: its missing
rows are padded with zeros, which is a no-op of the rule. With `G` the cumulative `g` of a chunk, `D_ij = exp(G_i -
G_j)` (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024, section 3.3)::

    S = strict_lower(diag(beta) K K^T * D)       T = (I + S)^-1
    u = T diag(beta) V                           w = T diag(beta) diag(e^G) K
    h' = A h + B of a chunk,  A = e^{G_C} I - K~^T w,  B = K~^T u,  K~_i = e^{G_C - G_i} k_i
"""

import numpy as np
from jaxtyping import Float64, Int, Shaped

from oracles.affine_composition.float64 import compose
from oracles.gated_delta_rule import check_inputs
from oracles.segments import starts
from oracles.ut_inversion import float64 as ut

# In the order in which they are computed.
STAGES = ("S", "T", "w", "u", "A", "B", "entering_rank", "entering_chunk")


def stages(
    q: Float64[np.ndarray, "B T Hk K"],
    k: Float64[np.ndarray, "B T Hk K"],
    v: Float64[np.ndarray, "B T Hv V"],
    g: Float64[np.ndarray, "B T Hv"],
    beta: Float64[np.ndarray, "B T Hv"],
    initial_state: Float64[np.ndarray, "B Hv K V"],
    *,
    ranks: int,
    chunk_size: int,
    segment_ids: Int[np.ndarray, "B T"] | None = None,
) -> tuple[np.ndarray, ...]:
    """All of `STAGES`: `S, T [R,N,B,Hv,C,C]`, `w [R,N,B,Hv,C,K]`, `u [R,N,B,Hv,C,V]`, then of a rank `A [R,B,Hv,K,K]`,
    `B [R,B,Hv,K,V]` and the state that enters it `[R,B,Hv,K,V]`, then the states that enter chunks `[R,N,B,Hv,K,V]`.

    With `segment_ids` nothing of a document is in the factors of another (`oracles.segments`).
    `q` is read by none of them. Raises ValueError on shapes that do not fit together, and on a T that is not a multiple
    of `ranks`.
    """
    check_inputs(q, k, v, g, beta, initial_state)
    if v.shape[1] % ranks:
        raise ValueError(f"T must be a multiple of the number of ranks; got T = {v.shape[1]}, R = {ranks}")
    k = np.repeat(k, v.shape[2] // k.shape[2], axis=2)
    first = starts(segment_ids, g.shape[:2])[..., None]
    k, v, g, beta, first = (_chunks(x, ranks, chunk_size) for x in (k, v, g, beta, first))

    document = np.cumsum(first, axis=-1)  # 0: that which the entering state is of
    D = np.where(document[..., :, None] == document[..., None, :], np.exp(_gates_between(g)), 0.0)
    decay_before = np.where(document == 0, np.exp(np.cumsum(g, axis=-1)), 0.0)
    decay_of_chunk = np.where(document[..., -1] == 0, np.exp(g.sum(-1)), 0.0)
    below = np.tri(g.shape[-1], k=-1, dtype=bool)
    S = np.where(below, beta[..., None] * (k @ np.swapaxes(k, -1, -2)) * D, 0.0)
    T = ut.inverse(S)
    w = T @ ((beta * decay_before)[..., None] * k)
    u = T @ (beta[..., None] * v)

    k_decayed = np.swapaxes(D[..., -1, :, None] * k, -1, -2)
    A_of_chunk = decay_of_chunk[..., None, None] * np.eye(k.shape[-1]) - k_decayed @ w
    B_of_chunk = k_decayed @ u

    A, B, entering_rank = [], [], []
    entering_chunk = np.empty_like(B_of_chunk)
    h = initial_state
    for rank in range(ranks):
        entering_rank.append(h)
        pair = np.broadcast_to(np.eye(k.shape[-1]), A_of_chunk.shape[2:]), np.zeros(initial_state.shape)
        for chunk in range(len(A_of_chunk[rank])):
            entering_chunk[rank, chunk] = h
            of_chunk = A_of_chunk[rank, chunk], B_of_chunk[rank, chunk]
            h = of_chunk[0] @ h + of_chunk[1]
            pair = compose(of_chunk, pair)
        A.append(pair[0])
        B.append(pair[1])
    return S, T, w, u, np.stack(A), np.stack(B), np.stack(entering_rank), entering_chunk


def _chunks(x: Shaped[np.ndarray, "B T H *size"], ranks: int, chunk_size: int) -> np.ndarray:
    """`[R, N, B, H, C, ...]`, padded with zeros."""
    batch, tokens, heads, *size = x.shape
    of_rank = tokens // ranks
    chunks = -(-of_rank // chunk_size)
    padded = np.zeros((batch, ranks, chunks * chunk_size, heads, *size), x.dtype)
    padded[:, :, :of_rank] = x.reshape(batch, ranks, of_rank, heads, *size)
    split = padded.reshape(batch, ranks, chunks, chunk_size, heads, *size)
    return np.moveaxis(split, (1, 2, 0, 4), (0, 1, 2, 3))


def _gates_between(g: Float64[np.ndarray, "*batch C"]) -> Float64[np.ndarray, "*batch C C"]:
    """`G_i - G_j`, summed over j < t <= i and not subtracted, and -inf for i < j: nothing overflows or cancels."""
    size = g.shape[-1]
    sums = np.full((*g.shape, size), -np.inf)
    for i in range(size):
        if i:
            sums[..., i, :i] = sums[..., i - 1, :i] + g[..., i : i + 1]
        sums[..., i, i] = 0.0
    return sums
