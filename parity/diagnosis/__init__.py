"""A reading of a failure: where it is, which stage is the first, which known mistake it resembles, and who is right."""
