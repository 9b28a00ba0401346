"""How far the layer's modes are from each other and from the truth on the mesh that has all axes, as Markdown.

    python benchmarks/layer_layouts.py

One forward and backward pass, in f32: differences relative to the largest element of each quantity, beside the figure
of those who ran 20 training steps in two modes (thread 5).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from oracles.gated_delta_net import GRADIENTS, OUTPUTS
from parity.devices import simulate
from parity.layer_layouts import DATA_CONTEXT_TENSOR, answers, off, relative

MODES = ("automatic", "explicit", "manual")
THEIRS = "3.1e-05"  # of the loss, at most, over 20 steps, explicit against automatic


def main() -> None:
    simulate(8)
    layouts = {mode: DATA_CONTEXT_TENSOR.layout(mode) for mode in MODES}
    forward = {mode: answers(layout, "f32", backward=False) for mode, layout in layouts.items()}
    found = {mode: answers(layout, "f32") for mode, layout in layouts.items()}
    print(f"Theirs, explicit from automatic over 20 steps: {THEIRS}\n")
    print("| | outputs | outputs beside gradients | gradients | the worst gradient | units from the truth, worst |")
    print("|---|---|---|---|---|---|")
    for mode in MODES:
        alone, both = relative(forward[mode], forward["automatic"]), relative(found[mode], found["automatic"])
        worst = max(GRADIENTS, key=both.__getitem__)
        outputs = [max(some[name] for name in OUTPUTS) for some in (alone, both)]
        units = off(found[mode], "f32", layouts[mode])
        name = max(units, key=units.__getitem__)
        figures = " | ".join(f"{x:.1e}" if x else "0" for x in (*outputs, both[worst]))
        print(f"| {mode} | {figures} | {worst if both[worst] else ''} | {units[name]:.2f}, {name} |", flush=True)


if __name__ == "__main__":
    main()
