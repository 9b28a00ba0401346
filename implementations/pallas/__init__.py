"""Kernels of our own in Pallas for TPUs; on CPUs they are interpreted."""
