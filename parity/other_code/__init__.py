"""Right code of the rule that shares no line with `implementations`: what the suite must not accuse."""
