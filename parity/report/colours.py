"""Colours of a number of units: light is far over the limit, in an order that colour-blind people see too."""

import math

# Dark blue over grey to yellow: lightness rises all the way, and neither red nor green carries meaning.
ANCHORS = ((26, 52, 114), (70, 84, 122), (116, 119, 126), (166, 153, 104), (214, 191, 78), (255, 234, 96))

# What is within the limit has the dark third of the scale, so that the limit itself is an edge.
WITHIN, OVER = 0.3, 0.5
LOWEST = -2.0


def share_of_scale(ratio: float, top: float) -> float:
    """Where on the scale, from 0 to 1, `ratio` (units as a multiple of the limit) lies when `top` is its bright end.

    Logarithmic on both sides of the limit: from 1/100 to 1, and from 1 to `top`.
    """
    if ratio <= 1:
        logarithm = math.log10(ratio) if ratio > 0 else LOWEST
        return WITHIN * (1 - max(logarithm, LOWEST) / LOWEST)
    return min(1.0, OVER + (1 - OVER) * math.log10(ratio) / math.log10(top))


def colour(share: float) -> tuple[int, int, int]:
    """The colour at `share` of the scale, in sRGB."""
    position = share * (len(ANCHORS) - 1)
    left = min(int(position), len(ANCHORS) - 2)
    low, high = ANCHORS[left], ANCHORS[left + 1]
    red, green, blue = (round(a + (b - a) * (position - left)) for a, b in zip(low, high, strict=True))
    return red, green, blue


def css(rgb: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)


def ink_on(rgb: tuple[int, int, int]) -> str:
    """Black or white, whichever is read more easily on `rgb`."""
    return "#000" if contrast(rgb, (0, 0, 0)) >= contrast(rgb, (255, 255, 255)) else "#fff"


def contrast(a: tuple[int, int, int], b: tuple[int, int, int]) -> float:
    """The contrast ratio of WCAG 2, from 1 to 21."""
    darker, lighter = sorted((luminance(a), luminance(b)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(rgb: tuple[int, int, int]) -> float:
    """The relative luminance of WCAG 2."""
    red, green, blue = (x / 255 / 12.92 if x / 255 <= 0.04045 else ((x / 255 + 0.055) / 1.055) ** 2.4 for x in rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
