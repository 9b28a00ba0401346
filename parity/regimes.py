"""The regimes: values that each make a class of mistakes visible. They differ in values only, never in shape.

Everything is formed by exact draws (`oracles.stream`), IEEE operations in a fixed order, and elementary
functions that python-flint rounds correctly, so that a problem is the same on every platform.
"""

from collections.abc import Callable

import numpy as np
from flint import arb, ctx

from oracles.stream import Stream
from parity.shapes import Shape

Values = dict[str, np.ndarray]
L2_EPSILON = 1e-6


def typical(stream: Stream, shape: Shape) -> Values:
    """Keys and queries after SiLU and L2 norm, gates `-exp(A_log) softplus(a + dt_bias)` as Qwen3-Next makes them.

    `exp(A_log)` runs over the heads from 1/64 (memory across all ranks) to 16 (none beyond a token).
    """
    values = _common(stream, shape)
    for name in ("q", "k"):
        x = stream.normal(name, *shape.sizes()[name])
        values[name] = _l2_norm(x * _sigmoid(x))
    A = np.array([2.0 ** (10 * head // max(shape.Hv - 1, 1) - 6) for head in range(shape.Hv)])
    values["g"] = -A * _softplus(stream.normal("a", *shape.sizes()["g"]) + 1.0)
    values["beta"] = _sigmoid(1.5 * stream.normal("b", *shape.sizes()["beta"]))
    return values


def long_memory(stream: Stream, shape: Shape) -> Values:
    """`sum |g|` at most 1 over all tokens, a slope for each head, exact zeros; beta touches 0 and 1; keys correlate.

    One token of one head in each row decays by -30: an exp of differences must survive it.
    """
    values = _common(stream, shape)
    values["k"] = _unit(0.2 * stream.normal("common", shape.B, 1, shape.Hk, shape.K) + 0.3 * values["k"])
    slope = (1 + np.arange(shape.Hv)) / (shape.Hv * shape.T)
    g = -slope * stream.uniform("g", *shape.sizes()["g"])
    g[stream.uniform("zero gates", *g.shape) < 0.1] = 0.0
    for row in range(shape.B):
        g[row, stream.integers(f"decay {row}", shape.T), row % shape.Hv] = -30.0
    beta, edge = stream.uniform("beta", *g.shape), stream.uniform("edges", *g.shape)
    values["g"], values["beta"] = g, np.where(edge < 0.05, 0.0, np.where(edge > 0.95, 1.0, beta))
    return values


def mixed_gates(stream: Stream, shape: Shape) -> Values:
    """Gates of exactly 0 and -30, with a period for each head: cumulative sums are exact and reach far."""
    values = _common(stream, shape)
    position = np.arange(shape.B)[:, None, None] + np.arange(shape.T)[None, :, None]
    values["g"] = np.where(position % (2 + np.arange(shape.Hv)) == 1, -30.0, 0.0)
    return values


def strong_decay(stream: Stream, shape: Shape) -> Values:
    """Gates of -1.5 to -20 everywhere: `exp` of a negated cumulative sum overflows, a quotient of two underflows."""
    values = _common(stream, shape)
    values["g"] = -(1.5 + 18.5 * stream.uniform("g", *shape.sizes()["g"]))
    return values


def correlated_keys(stream: Stream, shape: Shape) -> Values:
    """A common vector plus noise (cosine near 0.95) and beta near 1: powers of S explode, its inverse does not."""
    values = _common(stream, shape)
    values["k"] = _unit(_unit(stream.normal("common", shape.B, 1, shape.Hk, shape.K)) + 0.23 * values["k"])
    values["g"] = -0.02 * stream.uniform("g", *shape.sizes()["g"])
    values["beta"] = 0.8 + 0.2 * stream.uniform("beta", *shape.sizes()["beta"])
    return values


def repeated_keys(stream: Stream, shape: Shape) -> Values:
    """One key repeated, with beta 1: the true inverse stays below 1 where powers of S reach 1e36 in a chunk of 128."""
    values = _common(stream, shape)
    key = _unit(stream.normal("common", shape.B, 1, shape.Hk, shape.K))
    values["k"] = np.broadcast_to(key, shape.sizes()["k"]).copy()
    values["g"] = -0.001 * stream.uniform("g", *shape.sizes()["g"])
    values["beta"] = np.ones(shape.sizes()["beta"])
    return values


def beta_near_two(stream: Stream, shape: Shape) -> Values:
    """beta in (1, 2): transitions with negative eigenvalues, an ill-conditioned inverse."""
    values = _common(stream, shape)
    values["k"] = _unit(stream.normal("common", shape.B, 1, shape.Hk, shape.K) + 0.7 * values["k"])
    values["g"] = -0.05 * stream.uniform("g", *shape.sizes()["g"])
    values["beta"] = 1.0 + stream.uniform("beta", *shape.sizes()["beta"])
    return values


def orthogonal_write(stream: Stream, shape: Shape) -> Values:
    """Keys and queries from the standard basis, beta 1, g 0, small integers elsewhere: every operation is exact."""
    values = _common(stream, shape)
    for name in ("q", "k"):
        values[name] = np.eye(shape.K)[stream.integers(name, shape.K, shape.B, shape.T, shape.Hk)]
    for name in ("v", "initial_state", "do", "dfinal_state"):
        values[name] = stream.integers(name, 5, *shape.sizes()[name]) - 2.0
    values["g"] = np.zeros(shape.sizes()["g"])
    values["beta"] = np.ones(shape.sizes()["beta"])
    return values


def tiny_keys(stream: Stream, shape: Shape) -> Values:
    """Raw keys and queries whose norm is near the epsilon of the L2 norm (results from 0.1 to 1), some exactly zero."""
    values = _common(stream, shape)
    for name in ("q", "k"):
        exponent = stream.integers(f"{name} exponent", 7, shape.B, shape.T, shape.Hk, 1) - 13
        raw = np.ldexp(values[name], exponent) * (stream.uniform(f"{name} zero", *exponent.shape) > 0.05)
        values[name] = _l2_norm(raw)
    return values


def zero_keys(stream: Stream, shape: Shape) -> Values:
    """Half of the keys and of the queries exactly zero: singly, and in runs longer than a chunk."""
    values = _common(stream, shape)
    for name in ("q", "k"):
        singly = stream.uniform(f"{name} zero", shape.B, shape.T, shape.Hk, 1) < 0.3
        start = stream.integers(f"{name} run", shape.T, shape.B, 1, shape.Hk, 1)
        run = (np.arange(shape.T)[None, :, None, None] - start) % shape.T < shape.T // 4
        values[name] = np.where(singly | run, 0.0, values[name])
    return values


REGIMES: dict[str, Callable[[Stream, Shape], Values]] = {
    regime.__name__: regime
    for regime in (
        typical,
        long_memory,
        mixed_gates,
        strong_decay,
        correlated_keys,
        repeated_keys,
        beta_near_two,
        orthogonal_write,
        tiny_keys,
        zero_keys,
    )
}

# Where the truth is representable and every correct order of operations reaches it.
EXACT = frozenset({"orthogonal_write"})


def _common(stream: Stream, shape: Shape) -> Values:
    """Random values for every input and cotangent; the state and its cotangent are never zero."""
    sizes = shape.sizes()
    values = {name: stream.normal(name, *size) for name, size in sizes.items() if name not in ("g", "beta")}
    values["q"], values["k"] = _unit(values["q"]), _unit(values["k"])
    values["g"] = -0.3 * stream.uniform("g", *sizes["g"])
    values["beta"] = stream.uniform("beta", *sizes["beta"])
    return values


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(_sum_of_squares(x))


def _l2_norm(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(_sum_of_squares(x) + L2_EPSILON)


def _sum_of_squares(x: np.ndarray) -> np.ndarray:
    """Over the last axis, kept, in index order: np.sum's order depends on the build."""
    total = np.zeros((*x.shape[:-1], 1))
    for i in range(x.shape[-1]):
        total = total + x[..., i : i + 1] * x[..., i : i + 1]
    return total


def _correctly_rounded(function: Callable[[arb], arb], x: np.ndarray) -> np.ndarray:
    with ctx.workprec(128):
        return np.array([float(function(arb(float(value)))) for value in x.ravel()]).reshape(x.shape)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return _correctly_rounded(lambda y: 1 / (1 + (-y).exp()), x)


def _softplus(x: np.ndarray) -> np.ndarray:
    return _correctly_rounded(lambda y: y.exp().log1p(), x)
