"""Access to the Kubernetes API: a thin client, reflectors, and the few fields we read."""
