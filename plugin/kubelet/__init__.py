"""The kubelet's protocols: device plugin, PodResources, checkpoint."""
