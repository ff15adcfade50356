"""The pocket cluster's kubelet: device plugins, PodResources, and containers that are ordinary processes."""
