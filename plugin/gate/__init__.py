"""The admission of each container on the node, and what follows from it until the pod is gone."""
