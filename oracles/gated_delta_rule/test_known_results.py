"""Results of the rule that are known exactly, and inputs that are refused."""

import jaxtyping
import numpy as np
import pytest
from flint import arb, arb_mat

from oracles.gated_delta_rule import INPUTS, ball, float64
from oracles.gated_delta_rule.test_support import STATES, in_balls, in_float64, in_mp, one_head, problem
from oracles.stream import Stream


def assert_exactly(expected, x, scale):
    """Bitwise in float64, and in mpmath and balls (of radius 0) the same numbers. One row, one head."""
    results = in_float64(x, scale), in_mp(one_head(x), scale), in_balls(one_head(x), scale)
    for name, numbers in expected.items():
        in64, in_mpmath, in_arb = (result[name] for result in results)
        flat = np.asarray(numbers, dtype=float).ravel().tolist()
        assert in64.ravel().tolist() == flat, name
        assert list(in_mpmath) == flat, name
        assert all(entry == arb(number) for entry, number in zip(in_arb.entries(), flat, strict=True)), name


def single_head(**arrays):
    """Batch layout of one row and head, from nested lists without those axes."""
    arrays = {name: np.asarray(array, dtype=float) for name, array in arrays.items()}
    return {name: a[None, None] if name in STATES else a[None, :, None] for name, a in arrays.items()}


def test_one_token_by_hand():
    x = single_head(
        q=[[2, 1]],
        k=[[0.5, -1]],
        v=[[2, 1]],
        g=[0],
        beta=[0.5],
        initial_state=[[1, 2], [3, 4]],
        do=[[1, 2]],
        dfinal_state=[[1, 0], [0, 1]],
    )
    # k^T h0 = [-2.5, -3], so v - k^T h0 = [4.5, 4] and e = [2.25, 2].
    # L = [[2, 2], [0.5, 2]] after the read and [[1.875, 2.25], [0.75, 1.5]] after the write; de = [0.5, -1].
    expected = {
        "o": [2.5, 4],
        "final_state": [[2.125, 3], [0.75, 2]],
        "dq": [4.0625, 2.375],
        "dk": [9.25, 6.375],
        "dv": [0.25, -0.5],
        "dg": [14.625],
        "dbeta": [-1.75],
        "dh0": [[1.875, 2.25], [0.75, 1.5]],
    }
    assert_exactly(expected, x, 0.5)


def test_orthonormal_keys_overwrite_rows_of_the_state():
    stream, tokens, size = Stream("orthonormal"), 12, 4
    slots = stream.integers("slots", size, tokens)

    def integers(label, *shape):
        return stream.integers(label, 19, *shape) - 9.0

    x = single_head(
        q=integers("q", tokens, size),
        k=np.eye(size)[slots],
        v=integers("v", tokens, 3),
        g=np.zeros(tokens),
        beta=np.ones(tokens),
        initial_state=integers("h0", size, 3),
        do=integers("do", tokens, 3),
        dfinal_state=integers("dht", size, 3),
    )
    h, o = x["initial_state"][0, 0].copy(), []
    for t, slot in enumerate(slots):
        h[slot] = x["v"][0, t, 0]
        o.append(0.5 * x["q"][0, t, 0] @ h)
    # A value receives what is read from its slot until the next write to it; the initial state until the first.
    L, dv = x["dfinal_state"][0, 0].copy(), np.empty((tokens, 3))
    for t in reversed(range(tokens)):
        L += 0.5 * np.outer(x["q"][0, t, 0], x["do"][0, t, 0])
        dv[t] = L[slots[t]]
        L[slots[t]] = 0
    assert_exactly({"o": o, "final_state": h, "dv": dv, "dh0": L}, x, None)


def test_an_infinite_decay_separates_what_follows_from_what_came_before():
    x = problem("forgets", tokens=5)
    x["g"][0, 2] = -np.inf
    before = {name: array if name in STATES else array[:, :2] for name, array in x.items()}
    before["dfinal_state"] = np.zeros_like(x["dfinal_state"])
    after = {name: array if name in STATES else array[:, 2:] for name, array in x.items()}
    after["initial_state"] = np.zeros_like(x["initial_state"])
    for run in (in_float64, lambda x: in_mp(one_head(x)), lambda x: in_balls(one_head(x))):
        whole, first, last = (
            {name: as_floats(value) for name, value in run(part).items()} for part in (x, before, after)
        )
        assert whole["final_state"] == last["final_state"]
        assert whole["dh0"] == first["dh0"]
        for name in ("o", "dq", "dk", "dv", "dg", "dbeta"):
            assert whole[name] == first[name] + last[name], name


def as_floats(result):
    if isinstance(result, np.ndarray):
        return result.ravel().tolist()
    return [float(entry) for entry in (result.entries() if isinstance(result, arb_mat) else result)]


def test_no_tokens_leave_the_state_and_its_cotangent():
    x = problem("empty", tokens=0)
    found, truth = in_float64(x), in_mp(one_head(x))
    assert found["o"].shape == x["v"].shape
    np.testing.assert_array_equal(found["final_state"], x["initial_state"])
    np.testing.assert_array_equal(found["dh0"], x["dfinal_state"])
    assert as_floats(truth["final_state"]) == as_floats(x["initial_state"])
    assert as_floats(truth["dh0"]) == as_floats(x["dfinal_state"])
    one = one_head(x)
    o, final_state = ball.forward(*(one[name] for name in INPUTS), scale=None, bits=64)
    assert (o.nrows(), o.ncols()) == (0, 2)
    assert as_floats(final_state) == as_floats(x["initial_state"])


@pytest.fixture
def unchecked(monkeypatch):
    """As users call it: without the shape checks of jaxtyping, which under pytest may come first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("q", (2, 5, 3), "q must be"),
        ("v", (2, 5, 4, 2, 1), "v \\[B, T, Hv, V\\]"),
        ("q", (2, 5, 3, 3), "multiple"),
        ("q", (2, 5, 0, 3), "multiple"),
        ("k", (2, 5, 2, 4), "k must have shape"),
        ("k", (1, 5, 2, 3), "k must have shape"),
        ("v", (2, 6, 4, 2), "v must have shape"),
        ("g", (2, 5, 2), "g must have shape"),
        ("beta", (2, 5, 4, 1), "beta must have shape"),
        ("initial_state", (2, 4, 2, 3), "initial_state must have shape"),
    ],
)
@pytest.mark.parametrize("call", ["forward", "adjoint"])
@pytest.mark.usefixtures("unchecked")
def test_float64_refuses_shapes_that_do_not_fit(call, name, shape, message):
    x = problem("refused", batch=2, key_heads=2, group=2)
    x[name] = np.zeros(shape)
    names = INPUTS if call == "forward" else x.keys()
    with pytest.raises(ValueError, match=message):
        getattr(float64, call)(*(x[key] for key in names))
