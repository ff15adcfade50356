"""What the page of faults says of an API server that is away for long."""

AWAY = """\
## Ten minutes without an API server

```
make -C tests api-down MINUTES=10
```

F21 on real Kubernetes components, where kube-apiserver is killed and comes back as late as that;
`make -C tests cluster` has a third of a minute of it. A pod asks for more than its slice twice a second all the
while. On two cores that had other work, simulated driver, 2026-11-23:

| away | |
|---|---|
| 10 min | 1351 times refused; nothing was taken back; a new pod was ready 72 s after the return |

No container of ours or of a tenant started again but kube-scheduler, which ends when it cannot renew its Lease; a
kubelet waits for up to five minutes before it starts a container again that has ended often.
"""
