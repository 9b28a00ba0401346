"""Mutants that no test can kill, each with the proof."""

# module -> {change: proof}
EQUIVALENTS: dict[str, dict[str, str]] = {
    "parity/unit.py": {
        "found = in_units(np.where(finite, error, 0.0), want, kappa, u_c=u_c, u_out=u_out, floor=floor, block=block)"
        "  ->  "
        "found = in_units(np.where(finite, error, 1.0), want, kappa, u_c=u_c, u_out=u_out, floor=floor, block=block)": (
            "What stands for an error that is not finite decides nothing: its block is infinite in the next line."
        ),
        "scaled = x / np.where(per_token > 0, per_token, 1.0)"
        "  ->  "
        "scaled = x / np.where(per_token > 0, per_token, 3.0)": (
            "Where the largest element of a block is 0 all are, and 0 / 1 is 0 / 3."
        ),
    },
}
