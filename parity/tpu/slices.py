"""The chips that programs are compiled for where there are none: libtpu describes them, and compiles."""

import os
from functools import cache

import jax
from jax.experimental import topologies

# By chip, the smallest slices first; a device of tpu7x is half a chip.
SLICES = {
    "v5e": ("v5e:2x2", "v5e:2x4"),
    "v5p": ("v5p:2x2x1", "v5p:2x2x2", "v5p:4x4x4"),
    "v6e": ("v6e:2x2", "v6e:2x4"),
    "tpu7x": ("tpu7x:2x2x1", "tpu7x:2x2x2"),
}
CHIPS = tuple(SLICES)

# libtpu asks the machine what TPU it is part of, and refuses to be loaded by two processes: neither matters here.
_WITHOUT_A_TPU = ("TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD")


class NoCompilerForTpus(RuntimeError):
    """libtpu is not there."""


@cache
def devices(chip: str, count: int) -> tuple[jax.Device, ...]:
    """The first `count` devices of the smallest slice of `chip` that has as many. They compile, and run nothing.

    Raises NoCompilerForTpus without libtpu, and ValueError where no slice has as many or the chip is not known.
    """
    if chip not in SLICES or count < 1:
        raise ValueError(f"chip must be one of {', '.join(SLICES)}, and count positive; got {chip!r} and {count}")
    for name in _WITHOUT_A_TPU:
        os.putenv(name, "1")
    for topology in SLICES[chip]:
        try:
            found = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
        except RuntimeError as error:
            raise NoCompilerForTpus(
                f"programs for TPUs are compiled by libtpu, which jax does not find: install it with "
                f"pip install -e .[tpu], or run tox -e tpu-aot, which does ({error})"
            ) from error
        if len(found) >= count:
            return tuple(found[:count])
    raise ValueError(f"no slice of {chip} here has {count} devices; the largest is {SLICES[chip][-1]}")
