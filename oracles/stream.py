"""Reproducible random numbers: the same bits for the same name, on every platform and numpy version."""

import hashlib

import numpy as np
from jaxtyping import Float64, Int64


class Stream:
    """A sequence of random numbers that is a function of its name alone.

    The bits are SHAKE-256 of the name; every number is formed from them by exact integer or IEEE
    operations, so no numpy generator, libm or summation order can change a value. Each draw is keyed
    by its own label: adding a draw leaves the others as they were.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def _words(self, label: str, count: int, bytes_per_word: int) -> np.ndarray:
        digest = hashlib.shake_256(f"{self.name}/{label}".encode()).digest(count * bytes_per_word)
        return np.frombuffer(digest, dtype=f"<u{bytes_per_word}").astype(f"u{bytes_per_word}")

    def uniform(self, label: str, *shape: int) -> Float64[np.ndarray, "..."]:
        """Uniform on the multiples of 2^-53 in [0, 1)."""
        words = self._words(label, int(np.prod(shape, dtype=np.int64)), 8)
        return ((words >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)

    def normal(self, label: str, *shape: int) -> Float64[np.ndarray, "..."]:
        """Close to standard normal: the sum of twelve uniforms less six, an exact integer sum (|x| < 6)."""
        words = self._words(label, 12 * int(np.prod(shape, dtype=np.int64)), 4)
        total = words.reshape(*shape, 12).astype(np.int64).sum(axis=-1)
        return np.asarray((total - 6 * (2**32 - 1)) * 2.0**-32)

    def integers(self, label: str, bound: int, *shape: int) -> Int64[np.ndarray, "..."]:
        """Integers in [0, bound), from 64 bits each (the bias is bound / 2^64)."""
        words = self._words(label, int(np.prod(shape, dtype=np.int64)), 8)
        return (words % np.uint64(bound)).astype(np.int64).reshape(shape)

    def signs(self, label: str, *shape: int) -> Float64[np.ndarray, "..."]:
        """-1 or +1 with equal chance."""
        return np.asarray(self.integers(label, 2, *shape) * 2.0 - 1.0)
