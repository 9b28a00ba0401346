"""Our kernels by themselves, at the sizes of the models: what is compiled, and how much of a chip's memory it takes."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from implementations.chunked import Factors
from implementations.pallas.inversion import inversion
from implementations.pallas.scan import end_of_walk, walk
from implementations.ut_inversion.products import bf16x3, full, one_bf16_pass

K = V = 128
CHUNKS = 4


class Kernel(NamedTuple):
    """`call` for abstract arguments, given the heads, the chunk and where the arguments lie."""

    name: str
    call: Callable[..., Any]
    arguments: Callable[[int, int, Any], tuple[Any, ...]]


def _array(*shape: int, dtype: Any, on: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=SingleDeviceSharding(on))


def _matrices(heads: int, chunk: int, on: Any) -> tuple[Any, ...]:
    return (_array(CHUNKS * heads, chunk, chunk, dtype=jnp.float32, on=on),)


def _walked(heads: int, chunk: int, on: Any, *, dtype: Any, columns: int = V) -> tuple[Any, ...]:
    """A state of f32, and factors of `dtype`."""
    of = functools.partial(_array, CHUNKS, 1, heads, on=on)
    sizes = {"w": K, "u": columns, "q_decayed": K, "k_decayed": K, "attention": chunk}
    arrays: Any = {"decay": of(dtype=jnp.float32)} | {
        name: of(chunk, size, dtype=dtype) for name, size in sizes.items()
    }
    return _array(1, heads, K, columns, dtype=jnp.float32, on=on), Factors(**arrays)


def _differentiated(call: Callable[..., Any]) -> Callable[..., Any]:
    def program(*arguments: Any) -> Any:
        outputs, pullback = jax.vjp(call, *arguments)
        return outputs, pullback(jax.tree.map(jnp.ones_like, outputs))

    return program


KERNELS = (
    *(
        Kernel(
            f"inversion_{product.__name__}", _differentiated(functools.partial(inversion, product=product)), _matrices
        )
        for product in (full, bf16x3, one_bf16_pass)
    ),
    *(
        Kernel(f"scan_{jnp.dtype(dtype).name}", _differentiated(walk), functools.partial(_walked, dtype=dtype))
        for dtype in (jnp.float32, jnp.bfloat16)
    ),
    # Over [v | 0] from [0 | I], whose end is the map of a rank.
    Kernel("scan_of_a_map", _differentiated(end_of_walk), functools.partial(_walked, dtype=jnp.float32, columns=V + K)),
)
