"""What each of our accounts needs to be able to do: the rights that the chart gives, as questions to the API server.

`when` names a part of Aliquot that alone needs a right: `quotas` of the webhook, `evict` of the extender, the chart's
`own` kube-scheduler, and the keeper of certificates that `heals` Secrets where a policy says which, or keeps one for
Prometheus (`monitored`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from aliquot.api.names import API_GROUP


@dataclass(frozen=True, order=True)
class Right:
    """That an account may do something; `namespaced`: in Aliquot's namespace, else everywhere."""

    account: str
    verb: str
    group: str
    resource: str
    name: str = ""
    namespaced: bool = False
    when: str = ""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {kind}{f' {self.name}' if self.name else ''}"


AUTHENTICATION: Final = "authentication.k8s.io"
AUTHORIZATION: Final = "authorization.k8s.io"
COORDINATION: Final = "coordination.k8s.io"
REVIEWERS: Final = ("aliquot-agent", "aliquot-certs", "aliquot-scheduler", "aliquot-webhook")
POD_GROUPS: Final = ("scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh")


def _everywhere(
    account: str, verbs: str, group: str, resources: str, *, name: str = "", when: str = ""
) -> Iterator[Right]:
    for verb in verbs.split():
        for resource in resources.split():
            yield Right(account, verb, group, resource, name, when=when)


def _inside(
    account: str, verbs: str, group: str, resource: str, *, names: str = "", when: str = ""
) -> Iterator[Right]:
    for verb in verbs.split():
        for name in names.split() or [""]:
            yield Right(account, verb, group, resource, name, namespaced=True, when=when)


def _all() -> Iterator[Right]:
    for account in REVIEWERS:
        yield Right(account, "create", AUTHENTICATION, "tokenreviews")
        yield Right(account, "create", AUTHORIZATION, "subjectaccessreviews")
    yield from _agent()
    yield from _scheduler()
    yield from _everywhere("aliquot-webhook", "list watch", API_GROUP, "gpuquotas", when="quotas")
    secrets = "aliquot-ca aliquot-agent-tls aliquot-certs-tls aliquot-scheduler-tls aliquot-webhook-tls"
    yield from _inside("aliquot-certs", "get patch", "", "secrets", names=secrets)
    prometheus = "aliquot-prometheus-tls"
    yield from _inside("aliquot-certs", "get patch", "", "secrets", names=prometheus, when="monitored")
    yield from _inside("aliquot-certs", "create", "", "secrets", when="heals")
    group, resource = "admissionregistration.k8s.io", "mutatingwebhookconfigurations"
    yield from _everywhere("aliquot-certs", "get patch", group, resource, name="aliquot")


def _agent() -> Iterator[Right]:
    account = "aliquot-agent"
    yield from _everywhere(account, "get list watch", "", "pods")
    yield from _everywhere(account, "list watch", "", "nodes")
    yield from _everywhere(account, "create", "", "events")
    yield from _everywhere(account, "list watch", API_GROUP, "gpupools")
    yield from _everywhere(account, "get create patch", API_GROUP, "gpunodes")
    yield from _everywhere(account, "patch", API_GROUP, "gpunodes/status")


def _scheduler() -> Iterator[Right]:
    account = "aliquot-scheduler"
    yield from _everywhere(account, "get list watch", "", "pods")
    yield from _everywhere(account, "list watch", "", "nodes resourcequotas")
    yield from _everywhere(account, "list watch", API_GROUP, "gpunodes gpupools gpuquotas")
    yield from _everywhere(account, "list watch", "policy", "poddisruptionbudgets")
    for group in POD_GROUPS:
        yield from _everywhere(account, "list watch", group, "podgroups")
    yield from _everywhere(account, "create", "", "pods/binding")
    yield from _everywhere(account, "patch", "", "pods/status")
    yield from _everywhere(account, "patch", API_GROUP, "gpuquotas/status")
    yield from _everywhere(account, "create", "", "pods/eviction events", when="evict")
    yield from _inside(account, "create", COORDINATION, "leases")
    yield from _inside(account, "get patch", COORDINATION, "leases", names="aliquot-scheduler-ext")
    yield from _inside(account, "get update", COORDINATION, "leases", names="aliquot-scheduler", when="own")


RIGHTS: Final = tuple(_all())

KUBE_SCHEDULER: Final = tuple(
    right
    for group, resources in (
        ("", "persistentvolumeclaims namespaces"),
        ("apps", "replicasets"),
        ("storage.k8s.io", "storageclasses"),
    )
    for right in _everywhere("aliquot-scheduler", "list watch", group, resources, when="own")
)
"""Samples of what `system:kube-scheduler` and `system:volume-scheduler` allow, which the chart binds, too."""
