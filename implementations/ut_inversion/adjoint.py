"""The gradient of an inverse, from the inverse alone: `dS = -(T^T dT T^T)`, strictly lower."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from implementations.ut_inversion.products import Product

Inverse = Callable[[Array, Product], Array]


def with_its_adjoint(inverse: Inverse, product: Product) -> Callable[[Array], Array]:
    """`inverse(S, product)` as a function of S that is differentiated by the formula, and not step by step."""

    def invert(S: Float[Array, "... C C"]) -> Float[Array, "... C C"]:
        return inverse(S, product)

    def forward(S: Float[Array, "... C C"]) -> tuple[Array, Array]:
        T = invert(S)
        return T, T

    def backward(T: Float[Array, "... C C"], dT: Float[Array, "... C C"]) -> tuple[Array]:
        transposed = jnp.swapaxes(T, -1, -2)
        return (-jnp.tril(product(product(transposed, dT), transposed), -1),)

    function = jax.custom_vjp(invert)
    function.defvjp(forward, backward)
    return function
