"""CPU devices in place of a mesh, with threads enough for them. Called before jax starts."""

import os

import jax

# Collectives of one program that may be under way at once, on each device.
THREADS_A_DEVICE = 8


def simulate(devices: int) -> None:
    """As many CPU devices as `devices`, in this process.

    XLA for CPUs runs the parts of large programs on as many threads as the machine has cores, and a collective blocks
    the thread that it runs on until all devices have come to it. On fewer threads than there are devices to come none
    may ever be complete: on two cores and 4 or 8 devices a program with K = V = 128 hangs, or aborts after 40 seconds.
    XLA takes the number of threads from the environment, from NPROC.
    """
    os.putenv("NPROC", str(THREADS_A_DEVICE * devices))
    jax.config.update("jax_num_cpu_devices", devices)
