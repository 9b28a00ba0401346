"""Mistakes that the suite must catch, written as ordinary implementations and put through the public check."""
