"""Read-only queries: why a pod waits, what would help, and dry runs of filter."""
