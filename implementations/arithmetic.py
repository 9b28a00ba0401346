"""The arithmetic of our implementations, said once: accumulation dtype, dot precision, head grouping."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def accumulation_dtype(dtype: jnp.dtype) -> jnp.dtype:
    """f64 for f64 and f32 for everything narrower."""
    return jnp.promote_types(dtype, jnp.float32)


def product_precision(dtype: jnp.dtype) -> jax.lax.Precision:
    """Of products inside a kernel: of bf16 one pass is exact, and Mosaic refuses to be asked for more."""
    return jax.lax.Precision.DEFAULT if dtype == jnp.bfloat16 else jax.lax.Precision.HIGHEST


def einsum(subscripts: str, *operands: Array) -> Array:
    """`jnp.einsum` at full precision: on a TPU the default would round f32 operands to bf16."""
    return jnp.einsum(subscripts, *operands, precision=jax.lax.Precision.HIGHEST)


def repeat_heads(x: Float[Array, "B T Hk K"], value_heads: int) -> Float[Array, "B T Hv K"]:
    """Each key head serves `Hv / Hk` consecutive value heads (repeat, not tile)."""
    return jnp.repeat(x, value_heads // x.shape[2], axis=2)
