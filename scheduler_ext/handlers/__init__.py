"""What kube-scheduler's calls do: filter, bind, preempt; and resizes."""
