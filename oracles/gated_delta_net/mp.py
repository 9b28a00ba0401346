"""The layer in mpmath, at any precision, in the symbols of its equations: to be read, not to be fast.

One batch row at a time; documents are cut out of the row and run one by one. Arrays are taken exactly, whether they
hold floats or `mpf` (object arrays); results are arrays of `mpf`.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from jaxtyping import Int, Shaped
from mpmath import mp

from oracles.causal_conv import mp as causal_conv
from oracles.gated_delta_net import CONVOLVED, EPSILON, check_inputs
from oracles.gated_delta_rule import mp as rule

Tokens = Shaped[np.ndarray, "T D"]
State = Shaped[np.ndarray, "Hv K V"]
Arrays = dict[str, Shaped[np.ndarray, "..."]]


def forward(
    x: Tokens,
    parameters: Arrays,
    conv_state: Arrays,
    recurrent_state: State,
    *,
    segment_ids: Int[np.ndarray, " T"] | None = None,
    digits: int,
) -> tuple[Tokens, Arrays, State]:
    """`y [T, D]`, the final conv state (`[W-1, Hk, K]` and `[W-1, Hv, V]`) and the final recurrent state `[Hv, K, V]`.

    Arguments as in `float64.forward`, without the axis of rows; `digits` are decimal. Raises ValueError on shapes that
    do not fit together.
    """
    rows = {name: state[None] for name, state in conv_state.items()}
    ids = None if segment_ids is None else segment_ids[None]
    check_inputs(x[None], parameters, rows, recurrent_state[None], ids)
    with mp.workdps(digits):
        y = []
        for first, behind in pairwise(_cuts(len(x), segment_ids)):
            if first:
                conv_state, recurrent_state = _nothing(conv_state, recurrent_state)
            of_document, conv_state, recurrent_state = _document(
                x[first:behind], parameters, conv_state, recurrent_state, digits
            )
            y.append(of_document)
        return np.concatenate(y), conv_state, recurrent_state


def _document(
    x: Tokens, w: Arrays, conv_state: Arrays, recurrent_state: State, digits: int
) -> tuple[Tokens, Arrays, State]:
    T, (D, Hk, K), (_, Hv, V) = len(x), w["q"].shape, w["v"].shape
    active, final_conv_state = {}, {}
    for name in CONVOLVED:
        convolved, final_conv_state[name] = _convolved(
            _projected(x, w[name]), w[f"conv_{name}"], conv_state[name], digits
        )
        active[name] = _filled(convolved.shape, lambda *index, of=convolved: _silu(of[index]))
    z, a, b = (_projected(x, w[name]) for name in ("z", "a", "b"))
    A_log, dt_bias, norm = (_exactly(w[name]) for name in ("A_log", "dt_bias", "norm"))

    gated, final_state = np.empty((T, Hv, V), object), np.empty((Hv, K, V), object)
    for i in range(Hv):
        head = i // (Hv // Hk)
        o, h = rule.forward(
            _l2(active["q"][:, head]),
            _l2(active["k"][:, head]),
            active["v"][:, i],
            _filled((T,), lambda t, i=i: -mp.exp(A_log[i]) * _softplus(a[t, i] + dt_bias[i])),
            _filled((T,), lambda t, i=i: _sigmoid(b[t, i])),
            recurrent_state[i],
            scale=None,
            digits=digits,
        )
        for t in range(T):
            rms = mp.sqrt(mp.fdot(o[t, :], o[t, :]) / V + mp.mpf(EPSILON))
            gated[t, i] = [norm[j] * o[t, j] / rms * _silu(z[t, i, j]) for j in range(V)]
        final_state[i] = h.tolist()

    y = _filled((T, D), lambda t, d: mp.fdot(gated[t].ravel(), _exactly(w["out"][:, :, d])))
    return y, final_conv_state, final_state


def _projected(x: Tokens, weight: np.ndarray) -> np.ndarray:
    """`[T, ...]` of a weight `[D, ...]`."""
    return _filled((len(x), *weight.shape[1:]), lambda t, *of: mp.fdot(_exactly(x[t]), _exactly(weight[:, *of])))


def _convolved(x: np.ndarray, weight: np.ndarray, state: np.ndarray, digits: int) -> tuple[np.ndarray, np.ndarray]:
    """`y [T, H, N]` and the final state `[W-1, H, N]`, channel by channel."""
    y, final_state = np.empty(x.shape, object), np.empty(state.shape, object)
    for h, n in np.ndindex(weight.shape[:2]):
        of_channel = causal_conv.forward(x[None, :, h, n], weight[h, n], state[None, :, h, n], digits=digits)
        y[:, h, n], final_state[:, h, n] = (list(matrix) for matrix in of_channel)
    return y, final_state


def _l2(x: np.ndarray) -> np.ndarray:
    """Each row `y` as `y / sqrt(sum(y^2) + EPSILON)`."""
    return _filled(x.shape, lambda t, i: x[t, i] / mp.sqrt(mp.fdot(x[t], x[t]) + mp.mpf(EPSILON)))


def _silu(x: mp.mpf) -> mp.mpf:
    return x * _sigmoid(x)


def _sigmoid(x: mp.mpf) -> mp.mpf:
    return 1 / (1 + mp.exp(-x))


def _softplus(x: mp.mpf) -> mp.mpf:
    return mp.log1p(mp.exp(x))


def _nothing(conv_state: Arrays, recurrent_state: State) -> tuple[Arrays, State]:
    return {name: np.zeros_like(state) for name, state in conv_state.items()}, np.zeros_like(recurrent_state)


def _cuts(tokens: int, segment_ids: np.ndarray | None) -> list[int]:
    """Where documents begin, and where the last one ends."""
    ids = np.zeros(tokens) if segment_ids is None else segment_ids
    return [0, *(t for t in range(1, tokens) if ids[t] != ids[t - 1]), tokens]


def _exactly(x: np.ndarray) -> list[mp.mpf]:
    return [mp.mpf(entry) for entry in x.ravel()]


def _filled(shape: tuple[int, ...], entry: Callable[..., mp.mpf]) -> np.ndarray:
    array = np.empty(shape, object)
    for index in np.ndindex(shape):
        array[index] = entry(*index)
    return array
