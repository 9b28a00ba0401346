"""Ways to compute the UT transform `T = (I + S)^-1` of a strictly lower triangular S."""
