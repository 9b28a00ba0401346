"""How far off a result may be: limits that people set, observations that machines write, deviations of foreign code."""
