"""How far off the whole rule is where its inverse takes fewer passes: `python benchmarks/tpu_arithmetic.py`.

Prints, as Markdown, the worst quantity of every regime in the wide shape (K = V = 128, chunk 64, f32), with the inverse
as a ladder in XLA, in units of f32 and in those of bf16x3. A few minutes.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from parity.arithmetic.inverse_in_the_rule import PRODUCTS, in_units, with_inverse
from parity.precision import UNIT_ROUNDOFF
from parity.regimes import EXACT, REGIMES
from parity.tolerances.limits import limits
from parity.ut_inversion import BF16X3

CLAIMS = {"f32": UNIT_ROUNDOFF["f32"], "bf16x3": BF16X3}


def main() -> None:
    implementations = {name: with_inverse("ladder", name) for name in PRODUCTS}
    columns = [(name, claim) for name in PRODUCTS for claim in CLAIMS if (name, claim) != ("full", "bf16x3")]
    print("| regime | " + " | ".join(f"{name}, units of {claim}" for name, claim in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for regime in (regime for regime in REGIMES if regime not in EXACT):
        found = {key: in_units(implementations[key[0]], regime, CLAIMS[key[1]]) for key in columns}
        print(f"| `{regime}` | " + " | ".join(_cell(found[key]) for key in columns) + " |", flush=True)
    print(f"\nThe limit is {limits().base['f32'].units:g} units; what is over it is bold.")


def _cell(found: dict[str, float]) -> str:
    quantity = max(found, key=found.__getitem__)
    text = f"{found[quantity]:.2g}" if found[quantity] < 100 else f"{found[quantity]:,.0f}"
    return f"{f'**{text}**' if found[quantity] > limits().base['f32'].units else text} (`{quantity}`)"


if __name__ == "__main__":
    main()
