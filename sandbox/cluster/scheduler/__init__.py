"""A stand-in for kube-scheduler: a few in-tree filters, and extenders called as the real one calls them."""
