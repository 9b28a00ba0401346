"""What it costs to round gates to bf16: `python benchmarks/bf16_gates.py`.

Prints the tables of docs/layer.md: by quantity the units of the worst block and the relative error, of the layer around
`chunked` as it is, with g, with beta, or with the logits of both rounded to bf16. In a model in f32, and in one in
bf16, where such an error is within the claim.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from parity.layer.mistake import planted
from parity.layer.mistakes import MISTAKES
from parity.layer.problem import Problem
from parity.layer.run import AROUND, findings

QUANTITIES = (
    "y",
    "final_recurrent_state",
    "dx",
    "dq",
    "dk",
    "dv",
    "da",
    "db",
    "dA_log",
    "ddt_bias",
    "drecurrent_state",
)
ROUNDED = {"g": "g_in_bf16", "beta": "beta_in_bf16", "logits": "logits_in_bf16"}


def main() -> None:
    right = AROUND["chunked"]
    layers = {"as it is": right} | {name: planted(MISTAKES[mistake], right) for name, mistake in ROUNDED.items()}
    for dtype in ("f32", "bf16"):
        for regime in ("typical", "long_memory"):
            found = {name: findings(layer, Problem(regime, dtype)) for name, layer in layers.items()}
            print(f"\n{f'{dtype}, {regime}':24}" + "".join(f"{name:^20}" for name in layers))
            print(f"{'':24}" + f"{'units':>9}{'error':>9}  " * len(layers))
            for quantity in QUANTITIES:
                line = (found[name][quantity] for name in layers)
                print(f"{quantity:24}" + "".join(f"{x.units:9.3g}{x.relative_error:9.1e}  " for x in line))


if __name__ == "__main__":
    main()
