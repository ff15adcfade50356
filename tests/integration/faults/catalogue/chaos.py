"""What the page of faults says of chaos."""

CHAOS = """\
## Chaos

```
make -C tests chaos MINUTES=10 SEED=32
```

Two nodes of four cards, one of them cut by MIG, two extenders that elect a leader, a quota that is less than what
is asked for, and up to fourteen pods. One act after the other is drawn from the seed (`tests/integration/chaos`:
`guests`, `services`, `wires`, `cards`, `files`), each of the 32 once first, and then by its weight: pods come,
grow, crash, damage their account and go, by force, too; agents, kubelets, extenders, webhook, scheduler and API
server are killed or stand still; ways to the API server are cut, lose all answers, or are away for longer than
watches can be resumed; cards are lost and come back, report errors, lose an instance; files are cut, changed and
deleted. After each act the auditor looks. It counts as wrong at once what breaks a rule, after a minute what may
last as long; `test_auditor.py` shows that it finds each. What was done how often is printed at the end. `make
test-full` has a minute of it.

Runs of ten minutes on two cores that had other work, simulated driver, 2026-11-23:

| seed | acts | |
|---|---|---|
| 31 | 1260 | nothing was wrong |
| 32 | 1332 | nothing was wrong |

A kubelet that restarts before the agent is back gives up pods of which a container does not run at that moment, as
an init container that is done (`UnexpectedAdmissionError`); that is a rule of the kubelet's own, and the auditor
knows it. Kubelet and API server are the pocket cluster's here.
"""
