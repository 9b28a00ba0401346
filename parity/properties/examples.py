"""An example: a few sizes, styles and a seed. Its values are a function of them, so that one line of TOML is enough."""

import tomllib
from dataclasses import asdict, dataclass, fields
from typing import Literal, get_args

import numpy as np
from hypothesis import strategies as st

from implementations.contract import Dtype
from oracles.stream import Stream
from parity.precision import dtype_of, round_to
from parity.properties.sizes import Sizes, shape_of

Gates = Literal["weak", "zeros", "strong", "mixed", "spikes"]
Keys = Literal["normal", "correlated", "repeated", "tiny", "zero"]
Beta = Literal["inside", "edges", "above_one"]
STYLES = {"gates": get_args(Gates), "keys": get_args(Keys), "beta": get_args(Beta)}

Arguments = dict[str, np.ndarray]


@dataclass(frozen=True)
class Example:
    """What is drawn: a record, so that hypothesis shrinks it and a person reads it."""

    sizes: Sizes
    gates: Gates = "weak"
    keys: Keys = "normal"
    beta: Beta = "inside"
    seed: int = 0

    @property
    def stream(self) -> Stream:
        return Stream(f"property/{self.line()}")

    def line(self) -> str:
        """The example as the inside of an inline table of TOML."""
        entries = asdict(self.sizes) | {name: getattr(self, name) for name in (*STYLES, "seed")}
        return ", ".join(f'{name} = "{x}"' if isinstance(x, str) else f"{name} = {x}" for name, x in entries.items())

    def arguments(self, dtype: Dtype) -> Arguments:
        """The six inputs and both cotangents, rounded to `dtype` as the gate rounds them."""
        return {name: round_to(x, dtype_of(name, dtype)) for name, x in _values(self).items()}


def parse(line: str) -> Example:
    """The example that `Example.line` wrote. Raises ValueError where it is none."""
    try:
        entries = tomllib.loads(f"example = {{ {line} }}")["example"]
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"an example is the inside of an inline table of TOML; got {line!r}: {error}") from None
    names = [field.name for field in fields(Sizes)]
    known = {*names, *STYLES, "seed"}
    if entries.keys() != known:
        raise ValueError(f"an example has the entries {sorted(known)}; wrong here: {sorted(entries.keys() ^ known)}")
    wrong = {name: entries[name] for name, styles in STYLES.items() if entries[name] not in styles}
    wrong |= {name: entries[name] for name in (*names, "seed") if type(entries[name]) is not int}
    if wrong:
        raise ValueError(f"sizes and seed are integers, and styles are {STYLES}; got {wrong}")
    return Example(Sizes(**{name: entries.pop(name) for name in names}), **entries)


def examples(sizes: st.SearchStrategy[Sizes]) -> st.SearchStrategy[Example]:
    """Shrinks towards small sizes, plain styles and seed 0."""
    styles = {name: st.sampled_from(known) for name, known in STYLES.items()}
    return st.builds(Example, sizes=sizes, seed=st.integers(0, 2**20), **styles)


def _values(example: Example) -> Arguments:
    s = example.sizes
    wanted = shape_of(s.B, s.T, s.Hk, s.Hk * s.group, s.K, s.V, s.chunk_size).sizes()
    values = {name: example.stream.normal(name, *size) for name, size in wanted.items()}
    values["q"] = _unit(values["q"])
    values["k"] = _keys(example, _unit(values["k"]))
    values["g"] = _gates(example, wanted["g"])
    values["beta"] = _beta(example, wanted["beta"])
    return values


def _keys(example: Example, k: np.ndarray) -> np.ndarray:
    stream = example.stream
    common = _unit(stream.normal("common key", k.shape[0], 1, *k.shape[2:]))
    if example.keys == "correlated":
        return _unit(common + 0.23 * k)
    if example.keys == "repeated":
        return np.broadcast_to(common, k.shape).copy()
    if example.keys == "tiny":
        return np.ldexp(k, stream.integers("key exponent", 10, *k.shape[:3], 1) - 13)
    if example.keys == "zero":
        return k * (stream.uniform("zero key", *k.shape[:3], 1) < 0.5)
    return k


def _gates(example: Example, shape: tuple[int, ...]) -> np.ndarray:
    """Log decays; every head of a row has its own."""
    u, kind = example.stream.uniform("g", *shape), example.stream.uniform("kind of gate", *shape)
    if example.gates == "zeros":
        return np.zeros(shape)
    if example.gates == "strong":
        return -1.5 - 18.5 * u
    if example.gates == "mixed":
        return -u * np.select([kind < 0.25, kind < 0.5, kind < 0.75], [0.0, 0.01, 1.0], 20.0)
    if example.gates == "spikes":
        return np.where(kind < 0.15, -30.0, -0.05 * u)
    return -0.1 * u


def _beta(example: Example, shape: tuple[int, ...]) -> np.ndarray:
    u, edge = example.stream.uniform("beta", *shape), example.stream.uniform("edge of beta", *shape)
    if example.beta == "edges":
        return np.where(edge < 0.3, 0.0, np.where(edge > 0.7, 1.0, u))
    return 1.0 + u if example.beta == "above_one" else u


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)
