"""Numbers as people read them."""

import math


def number(x: float | None) -> str:
    """Three digits; a dash where there is none."""
    return "-" if x is None else f"{x:.3g}"


def times(ratio: float) -> str:
    """A multiple: `2.61e+13x`."""
    if math.isinf(ratio):
        return "infinitely"
    return f"{ratio:.3g}x"


def exact(x: float | None) -> str:
    """A number that somebody chose, such as a limit; a dash where there is none."""
    return "-" if x is None else f"{x:g}"


def percent(share: float) -> str:
    """A share of the limit: `38%`; what is far over it is a multiple."""
    if math.isinf(share):
        return "infinite"
    if share < 10:
        return f"{100 * share:.2g}%" if share < 1 else f"{100 * share:.0f}%"
    return times(share)
