"""How two batches of matrices are multiplied: in full, and as a matrix unit of bf16 would with one pass or three.

Of f64 there is one way only: what is emulated is the arithmetic of f32.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from implementations.arithmetic import product_precision

Product = Callable[[Array, Array], Array]


def in_two_parts(x: Float[Array, "*shape"]) -> tuple[Array, Array]:
    """`high + low`, both bf16: x but for its last 8 bits.

    XLA may drop a conversion to bf16 and back, and `low` would be 0: `reduce_precision` is what it has to keep.
    """
    high = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return high.astype(jnp.bfloat16), (x - high).astype(jnp.bfloat16)


def full(a: Float[Array, "... I J"], b: Float[Array, "... J L"]) -> Float[Array, "... I L"]:
    """In the operands' own precision: on a TPU six passes for f32 (`HIGHEST`)."""
    return _multiply(a, b, a.dtype)


def bf16x3(a: Float[Array, "... I J"], b: Float[Array, "... J L"]) -> Float[Array, "... I L"]:
    """Each f32 operand is two numbers of bf16, and of the four products the smallest is left out.

    A relative error of about 2^-16 in each product; sums are f32. Mosaic has no `Precision.HIGH`, which is this.
    """
    if a.dtype == jnp.float64:
        return full(a, b)
    (a_high, a_low), (b_high, b_low) = in_two_parts(a), in_two_parts(b)
    small = _multiply(a_high, b_low, a.dtype) + _multiply(a_low, b_high, a.dtype)
    return _multiply(a_high, b_high, a.dtype) + small


def one_bf16_pass(a: Float[Array, "... I J"], b: Float[Array, "... J L"]) -> Float[Array, "... I L"]:
    """Operands rounded to bf16, as a TPU multiplies f32 where nothing is said: not enough for an inverse."""
    if a.dtype == jnp.float64:
        return full(a, b)
    return _multiply(in_two_parts(a)[0], in_two_parts(b)[0], a.dtype)


def _multiply(a: Array, b: Array, dtype: jnp.dtype) -> Array:
    """Sums in `dtype`."""
    return jnp.matmul(a, b, precision=product_precision(a.dtype), preferred_element_type=dtype)
