"""Cards of nodes as arrays: their shapes, what is free on them, and whether a request fits."""
