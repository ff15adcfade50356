"""The webhook configuration and the admission policies: what of a pod is looked at, and what is refused."""

from collections.abc import Iterator

from aliquot.doctor.facts.cluster import Cluster
from aliquot.doctor.facts.objects import Policy, PolicyBinding, Webhook, WebhookConfiguration
from aliquot.doctor.finding import UPGRADE, Told, failure, ok, some, warning

POLICIES = (
    "aliquot-placements",
    "aliquot-bindings",
    "aliquot-slices",
    "aliquot-cdi",
    "aliquot-agents",
    "aliquot-agent-events",
)
SECRETS_POLICY = "aliquot-secrets"
"""Beside them where aliquot-certs keeps the certificates."""
WEBHOOKS_POLICY = "aliquot-webhooks"
"""The same where it keeps the webhook's CA, too."""
OURS = ("pods", "placement")
"""Webhooks that are there whatever dialects are on, by the first part of their names."""


def webhook(cluster: Cluster) -> Iterator[Told]:
    """The MutatingWebhookConfiguration: which pods it shows to the webhook, and how it calls it."""
    configuration = cluster.webhooks.get()
    if configuration is None:
        yield failure(
            "there is no MutatingWebhookConfiguration aliquot: no pod gets a slice.",
            f"{UPGRADE} --set webhook.enabled=true",
        )
        return
    told = [one for each in configuration.webhooks for one in _scope(cluster, each)]
    told += _dialects(cluster, configuration)
    yield from told or [
        ok(f"{', '.join(one.name for one in configuration.webhooks)}: scoped, failing closed")
    ]


def _scope(cluster: Cluster, one: Webhook) -> Iterator[Told]:
    if not one.match_conditions:
        yield failure(
            f"webhook {one.name} has no matchConditions: every pod of the cluster waits for it when it is down.",
            f"{UPGRADE}: the chart has them.",
            [one.name],
        )
    if one.failure_policy != "Fail":
        yield warning(
            f"webhook {one.name} has failurePolicy {one.failure_policy}: while it is down, pods come in unchanged and "
            "their slices are never placed.",
            f"{UPGRADE} --set webhook.failurePolicy=Fail",
            [one.name],
        )
    for kind, selector in (("namespace", one.namespace_selector), ("object", one.object_selector)):
        if selector and one.name.partition(".")[0] in OURS:  # a dialect may be for some namespaces alone
            yield warning(
                f"webhook {one.name} has a {kind}Selector: pods that it leaves out get no slice.",
                f"Take the {kind}Selector out, where that is not what you want.",
                [one.name],
            )
    service = one.client_config.service
    if service and (service.namespace, service.name) != (cluster.namespace, "aliquot-webhook"):
        yield failure(
            f"webhook {one.name} calls the Service {service.namespace}/{service.name}.", UPGRADE, [one.name]
        )


def _dialects(cluster: Cluster, configuration: WebhookConfiguration) -> Iterator[Told]:
    shown = {one.name.partition(".")[0] for one in configuration.webhooks}
    if missing := set(OURS) - shown:
        yield failure(f"webhooks that are missing: {some(missing)}", UPGRADE, sorted(missing))
    scheduler = cluster.workload("aliquot-scheduler")
    told = {"the webhook": cluster.dialects, "its configuration": frozenset(shown - set(OURS))}
    if scheduler:
        told["the extender"] = scheduler.listed("dialects")
    if len(set(told.values())) > 1:
        listed = ", ".join(f"{who} {some(words) or 'none'}" for who, words in told.items())
        yield failure(f"dialects differ: {listed}", f"{UPGRADE}: the chart tells them together.")


def policies(cluster: Cluster) -> Iterator[Told]:
    """The ValidatingAdmissionPolicies: there, bound everywhere, and denying."""
    found = {one.metadata.name: one for one in cluster.policies.get()}
    bound = {one.spec.policy_name: one for one in cluster.bindings.get()}
    wanted = _wanted(cluster)
    missing = [name for name in wanted if name not in found or name not in bound]
    if len(missing) == len(wanted):
        yield warning(
            "there are no admission policies: whoever may edit pods' status writes placements, and pods with slices "
            "may reach other cards (SECURITY.md, T1 to T3).",
            f"{UPGRADE} --set policies.enabled=true",
        )
        return
    if missing:
        yield failure(f"policies that are missing or not bound: {some(missing)}", UPGRADE, missing)
    told = [one for name in wanted if name not in missing for one in _policy(found[name], bound[name])]
    yield from told
    if not told and not missing:
        yield ok(f"{len(wanted)} policies are bound and deny")


def _wanted(cluster: Cluster) -> tuple[str, ...]:
    """The policies that the chart makes for what is installed."""
    if not cluster.workload("aliquot-certs"):
        return POLICIES
    kept = (SECRETS_POLICY, WEBHOOKS_POLICY) if cluster.workload("aliquot-webhook") else (SECRETS_POLICY,)
    return (*POLICIES, *kept)


def _policy(policy: Policy, binding: PolicyBinding) -> Iterator[Told]:
    name = policy.metadata.name
    if "Deny" not in binding.spec.validation_actions:
        yield warning(
            f"policy {name} does not deny, it only does {some(binding.spec.validation_actions) or 'nothing'}.",
            f"{UPGRADE} --set 'policies.validationActions={{Deny}}', once nobody rightful is stopped.",
            [name],
        )
    if any((binding.spec.match_resources or {}).get(key) for key in ("namespaceSelector", "objectSelector")):
        yield failure(
            f"policy {name} does not hold everywhere: its binding has a selector.",
            f"{UPGRADE}: the chart's binding has none.",
            [name],
        )
    checking = policy.status.type_checking
    if checking and checking.expression_warnings:
        yield warning(
            f"policy {name}: the control plane does not understand all of it: "
            f"{checking.expression_warnings[0].get('warning', '').strip()[:200]}",
            "Report it with the cluster's version.",
            [name],
        )
