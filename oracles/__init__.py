"""The truth: what the gated delta rule, the UT inversion and the affine composition are. Never imports jax."""
