"""A pocket Kubernetes: API server, kubelet and scheduler as ordinary processes."""
