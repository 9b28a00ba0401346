"""Properties of the rule that need no oracle's value: identities, symmetries, causality, invariances, on drawn examples."""
