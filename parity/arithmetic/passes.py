"""A product of f32 matrices in passes of bf16, as a TPU's matrix unit makes it.

An operand is a sum of numbers of bf16, of 8 bits each: `a = a1 + a2 + a3`, the first one the nearest. A pass multiplies
one of them with one of the other operand, exactly, and sums are f32. One pass leaves an error of 2^-9 in each operand,
three of about 2^-17, six of f32 itself.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

Passes = Literal[1, 3, 6]
Policy = Literal["identity", "as_written", "default", "high", "highest"]

_OF_PRECISION: dict[jax.lax.Precision, Passes] = {
    jax.lax.Precision.DEFAULT: 1,
    jax.lax.Precision.HIGH: 3,
    jax.lax.Precision.HIGHEST: 6,
}
_OF_NAME: dict[str, Passes] = {"default": 1, "high": 3, "highest": 6}
# (part of a, part of b), the smallest first: their sum is added to what is large.
_PRODUCTS = {1: [(0, 0)], 3: [(1, 0), (0, 1), (0, 0)], 6: [(2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)]}


def passes(policy: Policy, precision: object) -> Passes | None:
    """How often the matrix unit passes over an f32 product with jax's `precision`, one for each operand, or None, which
    is the default. None where the product is to be left alone.

    Raises ValueError on a policy that there is not, and on a precision that names no number of passes.
    """
    if policy == "identity":
        return None
    if policy in _OF_NAME:
        return _OF_NAME[policy]
    if policy != "as_written":
        raise ValueError(f"policy must be identity, as_written, default, high or highest; got {policy!r}")
    each = precision if isinstance(precision, tuple) else (precision, precision)
    known = [_OF_PRECISION.get(jax.lax.Precision(x)) for x in each if isinstance(x, jax.lax.Precision | str)]
    if len(known) < sum(x is not None for x in each) or None in known:
        raise ValueError(f"of a product with precision {precision} the passes of a matrix unit are not known")
    return max((x for x in known if x is not None), default=1)


def dot_in_passes(a: Array, b: Array, count: Passes, **dimensions: Any) -> Array:
    """`jax.lax.dot_general(a, b, **dimensions)` of f32 operands in `count` passes. Both are f32, as is the result."""
    parts = {1: 1, 3: 2, 6: 3}[count]
    of_a, of_b = _parts(a, parts), _parts(b, parts)
    products = [_pass(of_a[i], of_b[j], dimensions) for i, j in _PRODUCTS[count]]
    total = products[0]
    for product in products[1:]:
        total = total + product
    return total


def _parts(x: Array, count: int) -> list[Array]:
    """The first `count` numbers of bf16, held in f32: a product of two is exact there, and CPUs sum it in f32."""
    found = []
    for _ in range(count):
        # Not a conversion to bf16 and back, which XLA may drop.
        nearest = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
        found.append(nearest)
        x = x - nearest
    return found


def _pass(a: Array, b: Array, dimensions: dict[str, Any]) -> Array:
    return jax.lax.dot_general(
        a, b, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32, **dimensions
    )
