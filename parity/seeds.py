"""Ranges of seeds, as people write them."""

import re


def seeds(given: str) -> tuple[int, ...]:
    """`7` or `1-20`, both ends included. Raises ValueError."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", given)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if first > last:
        raise ValueError(f"--seeds {given!r}: expected a seed or a range of seeds, such as 7 or 1-20")
    return tuple(range(first, last + 1))


def as_text(seeds: tuple[int, ...]) -> str:
    """What `seeds` reads back."""
    return f"{seeds[0]}-{seeds[-1]}"
