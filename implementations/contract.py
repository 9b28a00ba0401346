"""What an implementation is, and what a call of it must look like.

The public contract, ours and anybody else's::

    call(q, k, v, g, beta, initial_state, *, scale, chunk_size) -> (o, final_state)
    q, k [B, T, Hk, K]   v, o [B, T, Hv, V]   g, beta [B, T, Hv]   initial_state, final_state [B, Hv, K, V]

`g` is the log decay, `beta` the write strength, `scale=None` means `K**-0.5`; key head `i` serves the
`Hv / Hk` consecutive value heads from `i Hv / Hk` on. `o` has the dtype of `v`, `final_state` that of
`initial_state`. A context-parallel implementation also takes `mesh` and `axes` (mesh axis names, major
to minor) and receives global arrays whose T axis is sharded over `axes`. One that is `packed` also takes
`segment_ids [B, T]`: the state begins anew, from 0, where the id changes from one token of a row to the next.
"""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp

from implementations.segments import check_segment_ids

Dtype = Literal["f64", "f32", "bf16"]
Feature = Literal[
    "gradients",
    "grouped_heads",
    "unequal_head_sizes",
    "ragged",
    "beta_above_one",
    "several_axes",
    "other_axes",
    "manual_axes",
]

FEATURES: frozenset[str] = frozenset(get_args(Feature))

# In the order in which they are computed, each with the names of its axes.
STAGES: Mapping[str, str] = {
    "S": "R N B Hv C C",
    "T": "R N B Hv C C",
    "w": "R N B Hv C K",
    "u": "R N B Hv C V",
    "A": "R B Hv K K",
    "B": "R B Hv K V",
    "entering_rank": "R B Hv K V",
    "entering_chunk": "R N B Hv K V",
}

_INPUTS = ("q", "k", "v", "g", "beta", "initial_state")
_COTANGENTS = ("do", "dfinal_state")


@dataclass(frozen=True, eq=False)  # a record is itself: two with one name are two
class Implementation:
    """One implementation of the gated delta rule, and what it claims.

    - `name`: the first token of its test ids, `[a-z][a-z0-9_]*`.
    - `call`: a function under the contract of this module.
    - `arithmetic`: for each dtype of its inputs the arithmetic it claims to compute in. The default says
      that bf16 inputs are computed on in f32 (only inputs and outputs are rounded to bf16); claim
      `"bf16": "bf16"` where products are rounded to bf16 inside. A dtype that is absent is not applicable.
    - `context_parallel`: whether `call` takes `mesh` and `axes`.
    - `load_balanced`: whether it takes `piece_order` too: which piece of the sequence lies where along T, rank by rank.
      It has a default, for it is left out where tokens lie in the order of the sequence.
    - `packed`: whether it takes `segment_ids` too, which has a default: documents that share a row of the batch and no
      state (`implementations.segments`).
    - `supports`: `gradients`, `grouped_heads` (Hv > Hk), `unequal_head_sizes` (K != V), `ragged` (the tokens of a
      rank are not a multiple of the chunk), `beta_above_one`, `several_axes` (`axes` names more than one axis),
      `other_axes` (rows and heads are sharded over axes that `axes` does not name), `manual_axes` (inside a caller's
      `shard_map` over all axes of the mesh, with `check_vma=False`, `call` takes and returns what one rank holds). What
      is left out is reported as not applicable.
    - `vjp`: gradients that do not come from `jax.vjp`:
      `vjp(q, k, v, g, beta, initial_state, do, dfinal_state, *, scale, chunk_size) -> (dq, dk, dv, dg, dbeta, dh0)`,
      with the keywords of a mesh too where context parallel.
    - `traceable`: whether `call` and `vjp` may be traced by `jax.jit`. False for another framework's kernel: it
      is given concrete jax arrays, must return jax or NumPy arrays, and needs `vjp` for its gradients.
    - `stages`: what is computed on the way, so that a failure can name the first stage that is wrong: a function with
      the arguments of `call` that returns a dict with any of `STAGES`, shaped as there: R ranks (1 without a mesh), N
      chunks of C tokens a rank. S, T, w and u are those of a chunk, `A h + B` is the map of a rank, and the states are
      those before its first token. Rows of a last chunk's padding are not compared. It decides no verdict.

    Raises ValueError or TypeError where the record contradicts itself or a signature does not fit.
    """

    name: str
    call: Callable[..., tuple[Any, Any]]
    arithmetic: Mapping[str, str] = field(default_factory=lambda: {"f64": "f64", "f32": "f32", "bf16": "f32"})
    context_parallel: bool = False
    load_balanced: bool = False
    packed: bool = False
    supports: Collection[str] = FEATURES
    vjp: Callable[..., tuple[Any, ...]] | None = None
    traceable: bool = True
    stages: Callable[..., Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(
                f"an implementation's name must match [a-z][a-z0-9_]*, as test ids need; got {self.name!r}"
            )
        if "shard" in self.name:
            raise ValueError(f"{self.name!r}: a name may not contain 'shard', which selects ranks in test ids")
        dtypes = get_args(Dtype)
        bad = {k: v for k, v in self.arithmetic.items() if k not in dtypes or v not in dtypes}
        if bad or not self.arithmetic:
            raise ValueError(f"{self.name}: arithmetic maps dtypes {dtypes} to dtypes; got {dict(self.arithmetic)}")
        unknown = sorted(set(self.supports) - FEATURES)
        if unknown:
            raise ValueError(f"{self.name}: unknown features {unknown}; known are {sorted(FEATURES)}")
        object.__setattr__(self, "supports", frozenset(self.supports))
        if not self.traceable and self.vjp is None and "gradients" in self.supports:
            raise ValueError(
                f"{self.name}: what jax cannot trace, jax cannot differentiate; "
                f"bring vjp=, or leave 'gradients' out of supports"
            )
        if self.load_balanced and not self.context_parallel:
            raise ValueError(f"{self.name}: load_balanced is about the tokens of ranks; it needs context_parallel=True")
        mesh = ("mesh", "axes") * self.context_parallel
        # Each is left out where it has nothing to say.
        optional = [()] + [("piece_order",)] * self.load_balanced + [("segment_ids",)] * self.packed
        functions = {"call": (self.call, _INPUTS), "vjp": (self.vjp, _INPUTS + _COTANGENTS)}
        for what, (function, positional) in (functions | {"stages": (self.stages, _INPUTS)}).items():
            for more in optional if function is not None or what == "call" else ():
                keywords = ("scale", "chunk_size", *mesh, *more)
                _check_signature(f"{self.name}: {what}", function, positional, keywords)


def _check_signature(what: str, function: Any, positional: tuple[str, ...], keywords: tuple[str, ...]) -> None:
    """Raise TypeError unless `function(*positional, **keywords)` binds."""
    if not callable(function):
        raise TypeError(f"{what} must be callable; got {function!r}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # builtins without a signature: the first call will tell
        return
    try:
        signature.bind(*positional, **dict.fromkeys(keywords))
    except TypeError as error:
        raise TypeError(
            f"{what}{signature} cannot be called as ({', '.join(positional)}, *, {', '.join(keywords)}): {error}"
        ) from None


def check_inputs(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    g: jax.Array,
    beta: jax.Array,
    initial_state: jax.Array,
    *,
    chunk_size: int,
    segment_ids: jax.Array | None = None,
) -> None:
    """Raise ValueError unless the inputs fit together and `chunk_size` is a positive integer."""
    if q.ndim != 4 or v.ndim != 4:
        raise ValueError(f"q must be [B, T, Hk, K] and v [B, T, Hv, V]; got {q.shape} and {v.shape}")
    batch, tokens, key_heads, key_size = q.shape
    value_heads, value_size = v.shape[2:]
    if min(q.shape) == 0 or min(v.shape) == 0:
        raise ValueError(f"every axis needs at least one element; got q {q.shape} and v {v.shape}")
    if value_heads % key_heads:
        raise ValueError(
            f"Hv must be a multiple of Hk, for each key head serves Hv / Hk value heads; "
            f"got Hv = {value_heads}, Hk = {key_heads}"
        )
    expected = {
        "k": (k, (batch, tokens, key_heads, key_size)),
        "v": (v, (batch, tokens, value_heads, value_size)),
        "g": (g, (batch, tokens, value_heads)),
        "beta": (beta, (batch, tokens, value_heads)),
        "initial_state": (initial_state, (batch, value_heads, key_size, value_size)),
    }
    for name, (array, shape) in expected.items():
        if array is None or array.shape != shape:
            got = None if array is None else array.shape
            raise ValueError(f"with q {q.shape} and v {v.shape}, {name} must have shape {shape}; got {got}")
    dtypes = {name: x.dtype for name, x in zip(_INPUTS, (q, k, v, g, beta, initial_state), strict=True)}
    if not all(jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize > 1 for dtype in dtypes.values()):
        raise ValueError(
            f"every input must be floating point, of 16 bits or more; got { {n: str(d) for n, d in dtypes.items()} }"
        )
    if not isinstance(chunk_size, Integral) or isinstance(chunk_size, bool) or chunk_size < 1:
        raise ValueError(f"chunk_size must be a positive integer; got {chunk_size!r}")
    check_segment_ids(segment_ids, batch, tokens)
