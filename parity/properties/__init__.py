"""Identities, symmetries, causality and invariances of the rule, on drawn examples: no oracle's value is needed."""
