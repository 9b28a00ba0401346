"""A reading of a failure: where it is wrong, which stage is the first, which known mistake it resembles, who is right."""
