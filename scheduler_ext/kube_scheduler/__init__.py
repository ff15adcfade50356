"""kube-scheduler's extender protocol, and the health of the kube-scheduler of this pod."""
