"""TPUs where there are none: their interpreter of Pallas kernels."""
