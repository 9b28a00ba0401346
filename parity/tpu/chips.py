"""The TPU chips of this machine: found by a process that then ends, and taken by those that compute.

A chip belongs to one process. `python -m parity.tpu.chips` prints what jax finds, as JSON, or why it finds nothing.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass

import jax

from parity.tolerances.provenance import ROOT, devices_of_others, of_devices

# Where a chip is held by another process, or other hosts of a slice are waited for, libtpu may wait for long.
PATIENCE = 180


class NoChips(Exception):
    """There is no TPU that this machine's jax can use; the message is one sentence."""


@dataclass(frozen=True)
class Devices:
    """What one process computes on: jax's name of the backend, what jax calls a device, and how many there are."""

    backend: str
    kind: str
    count: int


@dataclass(frozen=True)
class Chips:
    """`about`: what a ledger records of the devices. `names`: those by which TPU_VISIBLE_CHIPS knows the chips.

    A chip is one device of jax, and of a tpu7x two.
    """

    about: dict[str, str | int]
    names: tuple[str, ...]

    def of_a_process(self, processes: int) -> Devices:
        """What each of so many processes has: one all chips, and of several each one chip."""
        count = int(self.about["device_count"])
        return Devices("tpu", str(self.about["device_kind"]), count if processes == 1 else count // len(self.names))


def found() -> Chips:
    """The chips of this machine, asked of another process, for this one must not hold them. Raises NoChips."""
    command = [sys.executable, "-m", "parity.tpu.chips"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise NoChips(_sentence(f"its TPU runtime has not started within {PATIENCE} s")) from None
    said = (done.stdout.strip() or done.stderr.strip() or "it has said nothing").splitlines()
    if done.returncode:
        raise NoChips(_sentence(said[-1]))
    document = json.loads(next(line for line in said if line.startswith("{")))  # libtpu too may print
    return Chips(document["about"], tuple(document["names"]))


def take(chip: str | None) -> None:
    """This process computes on TPUs: on this chip alone, or on all. Called before jax starts; CPUs stay beside them."""
    jax.config.update("jax_platforms", "tpu,cpu")
    if chip is not None:
        one = {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1", "TPU_VISIBLE_CHIPS": chip}
        for name, value in (one | {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}).items():
            os.putenv(name, value)


def leave(chips: Chips) -> None:
    """This process computes nothing, and its workers do: it starts no TPU, whatever it imports."""
    jax.config.update("jax_platforms", "cpu")
    devices_of_others(chips.about)


def _sentence(why: str) -> str:
    return f"there is no TPU here that jax can use: {why}; `tox -e cpu` runs the gate on any machine"


def _main() -> int:
    take(None)
    try:
        devices = jax.devices()
    except RuntimeError as error:
        print(_reason(str(error)))
        return 1
    if devices[0].platform != "tpu":
        print(f"jax computes on {devices[0].platform}")
        return 1
    hosts = len({device.process_index for device in devices})
    if hosts > 1:
        print(f"this is one of {hosts} hosts of a slice, and the gate runs on one host alone")
        return 1
    chips = len({tuple(device.coords) for device in devices})
    visible = os.environ.get("TPU_VISIBLE_CHIPS")
    names = visible.split(",") if visible else [str(chip) for chip in range(chips)]
    print(json.dumps({"about": of_devices(), "names": names}))
    return 0


def _reason(error: str) -> str:
    """What jax says, without what it says of its own settings, in one line."""
    if importlib.util.find_spec("libtpu") is None and "libtpu" in error:
        return "libtpu is not installed, which `python -m pip install -e '.[tpu]'` does"
    told = re.sub(r"\s*\(set JAX_PLATFORMS=.*\)", "", " ".join(error.split()))
    return told.removeprefix("Unable to initialize backend 'tpu': ").rstrip(".")


if __name__ == "__main__":
    sys.exit(_main())
