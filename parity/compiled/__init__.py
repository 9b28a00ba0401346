"""What is read from compiled programs, in place of run: what they exchange, compute and hold."""
