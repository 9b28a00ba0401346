"""What is asked of the layer, and what is right: values by regime, their truth, and kappa.

Memory is long in some heads and short in others. No state and no cotangent is zero. Where documents are packed into the
rows, nothing else is changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from implementations.contract import Dtype
from implementations.layer_sizes import WIDE, Sizes
from oracles.cache import digest
from oracles.gated_delta_net import ARGUMENTS, CONVOLVED, COTANGENTS, GRADIENTS, OUTPUTS, QUANTITIES, shapes
from oracles.gated_delta_net.conditioned import conditioned
from oracles.stream import Stream
from parity.packing import segment_ids
from parity.precision import round_to
from parity.shapes import Shape
from parity.truth import CACHE

Values = dict[str, np.ndarray]

# On four ranks 25 tokens each: three chunks and one token.
B, T, CHUNK_SIZE = 2, 100, 8
SIZES = {
    name: Sizes(D=10, Hk=2, Hv=2 * group, K=8, V=6, W=4) for name, group in (("two", 2), ("three", 3), ("four", 4))
}

# By row, which of T + PADS tokens are padding. Single ones too, and a run longer than the window of the convolution.
PADS = 7
PADDING: dict[str, tuple[Sequence[int], Sequence[int]]] = {
    "left": (range(PADS), range(PADS)),
    "right": (range(T, T + PADS), range(T, T + PADS)),
    "middle": (range(40, 40 + PADS), (2, 5, 33, 34, 60, 62, 101)),
    "mixed": ((0, 1, 50, 51, 52, 53, 106), (1, 2, 3, 4, 103, 105, 106)),
}

OF_TOKENS = ("x", "y", "dx", "dy")
STATES = tuple(name for name in OUTPUTS if "state" in name)
OF_STATES = (*STATES, *(name for name in GRADIENTS if "state" in name))


@dataclass(frozen=True)
class Problem:
    """`regime` of values, rounded to `dtype`; `sizes` by how many value heads a key head serves; `packing` of documents
    as in `parity.packing`, or none; `fresh`: both initial states are zeros, as of a sequence that begins; `padding`:
    where among the tokens there is some (`PADDING`), which changes nothing of what is right.
    """

    regime: str
    dtype: Dtype
    sizes: str = "three"
    packing: str = ""
    fresh: bool = False
    padding: str = ""

    @property
    def name(self) -> str:
        return "/".join(("layer", self.regime, self.sizes, *([self.packing] if self.packing else [])))

    @property
    def mask(self) -> np.ndarray | None:
        """`[B, T + PADS]`, True for real tokens."""
        return (
            np.stack([~np.isin(np.arange(T + PADS), list(row)) for row in PADDING[self.padding]])
            if self.padding
            else None
        )

    @property
    def segment_ids(self) -> np.ndarray | None:
        sizes = SIZES[self.sizes]
        shape = Shape("layer", B=B, T=T, Hk=sizes.Hk, Hv=sizes.Hv, K=sizes.K, V=sizes.V, chunk_size=CHUNK_SIZE)
        return segment_ids(self.packing, shape) if self.packing else None


def dtype_of(name: str, dtype: Dtype) -> Dtype:
    """The dtype of the argument or quantity `name` in a model in `dtype`: A_log, dt_bias, norm and the recurrent state
    are in f32 where it is narrower.
    """
    wide = (*WIDE, *(f"d{parameter}" for parameter in WIDE))
    return "f32" if dtype == "bf16" and (name in wide or "recurrent" in name) else dtype


# Values


def _typical(stream: Stream, sizes: Sizes) -> Values:
    """exp(A_log) from 1/32 to 8, so that g is from about -1/32 to -10 a token."""
    values = _normal(stream, sizes)
    values["A_log"] = 5.5 * np.arange(sizes.Hv) / (sizes.Hv - 1) - 3.5 + 0.1 * values["A_log"]
    values["dt_bias"] = 0.5 + 0.5 * values["dt_bias"]
    return values


def _long_memory(stream: Stream, sizes: Sizes) -> Values:
    """sum |g| from 1/3 to 2 over all tokens, and tokens that have much in common."""
    values = _normal(stream, sizes)
    values["A_log"] = -5 - 1.4 * np.arange(sizes.Hv) / (sizes.Hv - 1)
    values["dt_bias"] = 1 + 0.2 * values["dt_bias"]
    values["x"] = 0.7 * stream.normal("common", 1, 1, sizes.D) + 0.7 * values["x"]
    return values


def _tiny_keys(stream: Stream, sizes: Sizes) -> Values:
    """Norms of keys and queries near the root of the epsilon, and some keys exactly 0: in either row a run of zeros
    that is longer than the window of the convolution, and single ones.
    """
    values = _typical(stream, sizes)
    for name in ("q", "k"):
        values[name] = values[name] / 512
        values[f"conv_state_{name}"] = values[f"conv_state_{name}"] / 512
    size = 2.0 ** (stream.integers("size", 5, B, T, 1) - 3)
    zero = stream.uniform("zero", B, T, 1) < 0.1
    zero[0, 20:29], zero[1, 47:53] = True, True
    values["x"] = np.where(zero, 0.0, size * values["x"])
    return values


REGIMES: dict[str, Callable[[Stream, Sizes], Values]] = {
    "typical": _typical,
    "long_memory": _long_memory,
    "tiny_keys": _tiny_keys,
}


def _normal(stream: Stream, sizes: Sizes) -> Values:
    """Every argument, in a model's usual magnitudes."""
    scale = dict.fromkeys(("q", "k", "v", "z", "a", "b"), sizes.D ** (-0.5))
    scale |= {f"conv_{name}": 0.5 for name in CONVOLVED} | {"norm": 0.3, "out": (sizes.Hv * sizes.V) ** -0.5}
    of = shapes(B=B, T=T, D=sizes.D, Hk=sizes.Hk, Hv=sizes.Hv, K=sizes.K, V=sizes.V, W=sizes.W)
    values = {name: scale.get(name, 1.0) * stream.normal(name, *shape) for name, shape in of.items()}
    values["norm"] += 1
    return values


def arguments(problem: Problem) -> Values:
    """`ARGUMENTS`, each in its dtype."""
    values = REGIMES[problem.regime](Stream(f"layer/{problem.regime}/{problem.sizes}"), SIZES[problem.sizes])
    if problem.fresh:
        values |= {name: np.zeros_like(x) for name, x in values.items() if "state" in name and name not in COTANGENTS}
    return {name: round_to(values[name], dtype_of(name, problem.dtype)) for name in ARGUMENTS}


@cache
def truth(problem: Problem) -> tuple[Values, Values]:
    """`(values, kappa)` by `QUANTITIES`, from the disk cache where they are there."""
    exact = {name: x.astype(np.float64) for name, x in arguments(problem).items()}
    ids = problem.segment_ids

    def compute() -> Values:
        values, kappa = conditioned(exact, name=problem.name, segment_ids=ids, chunk_size=CHUNK_SIZE)
        return values | {f"kappa {name}": x for name, x in kappa.items()}

    documents = {} if ids is None else {"segment_ids": ids}
    stored = CACHE.fetch(digest(exact | documents, f"layer chunk_size={CHUNK_SIZE}", problem.name), compute)
    return {q: stored[q] for q in QUANTITIES}, {q: stored[f"kappa {q}"] for q in QUANTITIES}
