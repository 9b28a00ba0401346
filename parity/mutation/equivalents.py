"""Mutants that no test can kill, each with the proof."""

# module -> {change: proof}
EQUIVALENTS: dict[str, dict[str, str]] = {}
