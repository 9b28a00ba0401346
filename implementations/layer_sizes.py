"""Sizes of the GatedDeltaNet layer: the published ones by name, and the shapes and dtypes of parameters and states.

The published ones are those of the model cards ("Hidden Dimension", "Number of Linear Attention Heads", "Head
Dimension") and of `text_config` in `config.json` (`hidden_size`, `linear_num_key_heads`, `linear_num_value_heads`,
`linear_key_head_dim`, `linear_value_head_dim`, `linear_conv_kernel_dim`) of the models of these names in
huggingface.co/Qwen.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from implementations.arithmetic import accumulation_dtype

States = tuple[dict[str, Any], Any]


@dataclass(frozen=True)
class Sizes:
    """D: of the model. Hk, Hv: key and value heads, Hv a multiple of Hk. K, V: of a head. W: taps of the convolution.

    Raises ValueError on sizes that are not positive integers, and on Hv that is not a multiple of Hk.
    """

    D: int
    Hk: int
    Hv: int
    K: int
    V: int
    W: int

    def __post_init__(self) -> None:
        if not all(isinstance(size, int) and size > 0 for size in asdict(self).values()):
            raise ValueError(f"sizes must be positive integers; got {self}")
        if self.Hv % self.Hk:
            raise ValueError(f"Hv must be a multiple of Hk, for each key head serves Hv / Hk value heads; got {self}")


PUBLISHED: Mapping[str, Sizes] = MappingProxyType(
    {
        "Qwen3-Next-80B-A3B": Sizes(D=2048, Hk=16, Hv=32, K=128, V=128, W=4),
        "Qwen3.5-0.8B": Sizes(D=1024, Hk=16, Hv=16, K=128, V=128, W=4),
        "Qwen3.5-2B": Sizes(D=2048, Hk=16, Hv=16, K=128, V=128, W=4),
        "Qwen3.5-4B": Sizes(D=2560, Hk=16, Hv=32, K=128, V=128, W=4),
        "Qwen3.5-9B": Sizes(D=4096, Hk=16, Hv=32, K=128, V=128, W=4),
        "Qwen3.5-27B": Sizes(D=5120, Hk=16, Hv=48, K=128, V=128, W=4),
        "Qwen3.5-35B-A3B": Sizes(D=2048, Hk=16, Hv=32, K=128, V=128, W=4),
        "Qwen3.5-122B-A10B": Sizes(D=3072, Hk=16, Hv=64, K=128, V=128, W=4),
        "Qwen3.5-397B-A17B": Sizes(D=4096, Hk=16, Hv=64, K=128, V=128, W=4),
    }
)

# In the order in which they are listed wherever there is one, each with its axes.
PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        "q": "D Hk K",
        "k": "D Hk K",
        "v": "D Hv V",
        "z": "D Hv V",
        "a": "D Hv",
        "b": "D Hv",
        "conv_q": "Hk K W",
        "conv_k": "Hk K W",
        "conv_v": "Hv V W",
        "A_log": "Hv",
        "dt_bias": "Hv",
        "norm": "V",
        "out": "Hv V D",
    }
)
CONV_STATE: Mapping[str, str] = MappingProxyType({"q": "Hk K", "k": "Hk K", "v": "Hv V"})

# Kept in f32 where the model is narrower, as gates and the recurrent state are.
WIDE = ("A_log", "dt_bias", "norm")


def parameters_like(sizes: Sizes, dtype: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """Shape and dtype of each parameter of a model in `dtype`."""
    wide = accumulation_dtype(jnp.dtype(dtype))
    return {
        name: jax.ShapeDtypeStruct(_shape(sizes, axes), wide if name in WIDE else dtype)
        for name, axes in PARAMETERS.items()
    }


def states_like(sizes: Sizes, rows: int, dtype: Any) -> States:
    """Shape and dtype of `(conv_state, recurrent_state)` for a model in `dtype`: of `rows` sequences, or slots."""
    conv_state = {
        name: jax.ShapeDtypeStruct((rows, sizes.W - 1, *_shape(sizes, axes)), dtype)
        for name, axes in CONV_STATE.items()
    }
    return conv_state, jax.ShapeDtypeStruct((rows, *_shape(sizes, "Hv K V")), accumulation_dtype(jnp.dtype(dtype)))


def zero_states(sizes: Sizes, rows: int, dtype: Any) -> States:
    """`(conv_state, recurrent_state)` before the first token."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), states_like(sizes, rows, dtype))


def sizes_of(parameters: Mapping[str, Any]) -> Sizes:
    """The sizes that "q", "v" and "conv_q" have. Raises ValueError where these have not three axes, and as `Sizes`."""
    telling = ("q", "v", "conv_q")
    for name in telling:
        if parameters[name].ndim != 3:
            raise ValueError(f"parameter {name!r} must be [{PARAMETERS[name]}]; got {parameters[name].shape}")
    (D, Hk, K), (_, Hv, V), (*_, W) = (parameters[name].shape for name in telling)
    return Sizes(D, Hk, Hv, K, V, W)


def _shape(sizes: Sizes, axes: str) -> tuple[int, ...]:
    return tuple(getattr(sizes, axis) for axis in axes.split())
