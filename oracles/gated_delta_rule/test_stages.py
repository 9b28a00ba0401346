"""The stages of the chunked form: each by what it means in the recurrence."""

import numpy as np
import pytest

from oracles.affine_composition import float64 as affine
from oracles.gated_delta_rule import float64
from oracles.gated_delta_rule.stages import STAGES, stages

RANKS, CHUNK, TOKENS = 3, 4, 30  # ten tokens a rank: chunks of 4, 4 and 2


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)


@pytest.fixture(params=["weak", "strong"])
def x(request):
    draw = np.random.default_rng(0)
    q, k = draw.normal(size=(2, 2, TOKENS, 2, 5))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g = -draw.uniform(size=(2, TOKENS, 4)) * (0.3 if request.param == "weak" else 30.0)
    return q, k, draw.normal(size=(2, TOKENS, 4, 3)), g, draw.uniform(size=g.shape), draw.normal(size=(2, 4, 5, 3))


@pytest.fixture
def found(x):
    return dict(zip(STAGES, stages(*x, ranks=RANKS, chunk_size=CHUNK), strict=True))


def state_after(x, tokens):
    *sequences, h0 = x
    return float64.forward(*(y[:, :tokens] for y in sequences), h0)[1] if tokens else h0


def test_shapes(found):
    chunk, state = (3, 3, 2, 4), (5, 3)
    assert {name: y.shape for name, y in found.items()} == {
        "S": (*chunk, CHUNK, CHUNK),
        "T": (*chunk, CHUNK, CHUNK),
        "w": (*chunk, CHUNK, 5),
        "u": (*chunk, CHUNK, 3),
        "A": (3, 2, 4, 5, 5),
        "B": (3, 2, 4, *state),
        "entering_rank": (3, 2, 4, *state),
        "entering_chunk": (*chunk, *state),
    }


def test_entering_states_are_those_of_the_recurrence(x, found):
    for rank in range(RANKS):
        close(found["entering_rank"][rank], state_after(x, 10 * rank))
        for chunk in range(3):
            close(found["entering_chunk"][rank, chunk], state_after(x, 10 * rank + CHUNK * chunk))


def test_u_minus_w_h_is_what_each_token_writes(x, found):
    """`h_t = e^{g_t} h_{t-1} + k_t (u - w h)_t^T`, token by token in the recurrence."""
    k, g = np.repeat(x[1], 2, axis=2), x[3]
    written = found["u"] - found["w"] @ found["entering_chunk"]
    for rank in range(RANKS):
        for i in range(10):
            t, (chunk, row) = 10 * rank + i, divmod(i, CHUNK)
            left = state_after(x, t + 1) - np.exp(g[:, t])[..., None, None] * state_after(x, t)
            close(k[:, t, :, :, None] * written[rank, chunk, :, :, row, None, :], left)


def test_the_maps_of_the_ranks_lead_from_one_to_the_next(x, found):
    pairs = (np.moveaxis(found[name], 0, -3) for name in ("A", "B"))
    entering, final_state = affine.incoming_states(*pairs, x[5])
    close(np.moveaxis(entering, -3, 0), found["entering_rank"])
    close(final_state, state_after(x, TOKENS))


def test_a_map_is_a_run_of_the_rule(x, found):
    """`[B | A]` is the final state of the values `[v | 0]` from `[0 | I]`."""
    _, k, v, g, beta, _ = x
    for row, head in ((0, 0), (1, 3)):
        A, B = affine.transition(*(y[row, 10:20, h] for y, h in ((k, head // 2), (v, head), (g, head), (beta, head))))
        close(found["A"][1, row, head], A)
        close(found["B"][1, row, head], B)


def test_t_is_the_inverse_of_i_plus_s(found):
    S, identity = found["S"], np.eye(CHUNK)
    assert np.array_equal(S, np.tril(S, -1))
    close(found["T"] @ (identity + S), np.broadcast_to(identity, S.shape))


def test_padding_stays_zero(found):
    assert not found["S"][:, -1, :, :, 2:].any()
    assert not found["w"][:, -1, :, :, 2:].any()
    assert not found["u"][:, -1, :, :, 2:].any()
    assert found["u"][:, -1, :, :, :2].all()


def test_q_is_not_read(x, found):
    q, *others = x
    again = stages(2 * q, *others, ranks=RANKS, chunk_size=CHUNK)
    assert all(np.array_equal(a, b) for a, b in zip(again, found.values(), strict=True))


def test_ranks_must_divide_the_tokens(x):
    with pytest.raises(ValueError, match="multiple of the number of ranks; got T = 30, R = 4"):
        stages(*x, ranks=4, chunk_size=CHUNK)
