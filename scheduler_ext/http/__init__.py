"""The HTTP servers and clients of the extender, and its metrics."""
