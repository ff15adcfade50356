"""A pocket Kubernetes: API server, kubelet and stand-in scheduler as ordinary processes of one machine.

Each speaks the real wire protocol as far as this project uses it, so that the real services run against it
unchanged; `cluster.PocketCluster` starts, kills and restarts them.
"""
