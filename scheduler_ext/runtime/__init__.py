"""Leader election, and what keeps the process responsive."""
