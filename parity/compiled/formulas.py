"""What each part costs, a chunk and head, from its algebra: FLOPs of products and solves (2 a multiply-add).

`C` tokens a chunk, `K` and `V` the sizes of a head. `backward=True`: forward and backward together, where a map of a
rank forms its intermediates anew (`jax.checkpoint`). Each product costs two more in a backward, one for each operand.
"""

import math


def core(C: int, K: int, V: int, *, backward: bool = False) -> int:
    """`chunked`."""
    scores = 2 * 2 * C * C * K  # K K^T and Q K^T
    factors = 2 * C * C * K + 2 * C * C * V  # w and u
    replay = 3 * 2 * C * K * V + 2 * C * C * V  # w h, Q h, K~^T (u - w h), and tril(Q K^T * D) (u - w h)
    inverse = C**3
    # The adjoint of the inverse, -T^T dT T^T, is a solve and a product.
    return (3 if backward else 1) * (scores + factors + replay) + inverse + (backward and 3 * C**3)


def fold(C: int, K: int, V: int, *, backward: bool = False) -> int:
    """`K~^T w`, `K~^T u`, and `A A'` and `A B'` for what came before. Of these the backward forms the first anew."""
    A, B, composed = 2 * C * K * K, 2 * C * K * V, 2 * K * K * (K + V)
    return A + B + composed + (backward and A + 2 * (A + B + composed))


def local_pass(C: int, K: int, V: int, *, backward: bool = False) -> int:
    """`w [B | M]` and `K~^T (u - w [B | M])`. Of these the backward forms the first anew."""
    read = write = 2 * C * K * (K + V)
    return read + write + (backward and read + 2 * (read + write))


def reverse_fold(C: int, K: int, V: int, *, backward: bool = False) -> int:
    """`X = P K~^T`, `X u` and `X w`. Of these the backward forms the first anew."""
    X, B, A = 2 * C * K * K, 2 * C * K * V, 2 * C * K * K
    return X + B + A + (backward and X + 2 * (X + B + A))


def adjoint_pass(C: int, K: int, V: int) -> int:
    """The cotangent of the state that enters, given those of the outputs: `Q^T do`, `tril(Q K^T * D)^T do`, `K~ L` and
    `w^T` of the sum of the last two, as a backward from a leaving cotangent of zero forms them.
    """
    return 3 * 2 * C * K * V + 2 * C * C * V


def exchange(name: str, ranks: int, K: int, V: int) -> int:
    """Of one rank, for each head, whatever the length: maps applied to states, and composed (forward)."""
    apply, compose = 2 * K * K * V, 2 * K * K * (K + V)
    match name:
        case "all_gather_prefix" | "ring":
            return ranks * apply
        case "log_depth_prefix":
            return math.ceil(math.log2(ranks)) * compose + apply
    raise ValueError(f"no formula for the exchange {name!r}")
