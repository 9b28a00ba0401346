"""Schemes that split the sequence over mesh axes: each rank holds consecutive tokens, ranks in sequence order."""
