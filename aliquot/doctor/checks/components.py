"""The chart's own parts: whether they run, answer, and are known to the API server."""

from collections.abc import Iterator

from aliquot.api.names import API_VERSION
from aliquot.doctor.facts.cluster import COMPONENTS, Cluster
from aliquot.doctor.facts.fact import NotKnownError
from aliquot.doctor.facts.objects import Workload
from aliquot.doctor.finding import UPGRADE, Told, count, failure, not_checked, ok, some, warning

USUAL_REPLICAS = {"aliquot-certs": 1, "aliquot-webhook": 2, "aliquot-scheduler": 2}
"""As the chart has them, where its values do not say otherwise."""


def components(cluster: Cluster) -> Iterator[Told]:
    """Deployments and the DaemonSet: all there, all ready."""
    whole = list[str]()
    for name in COMPONENTS:
        workload = cluster.workload(name)
        if workload is None:
            yield from _absent(cluster, name)
        elif workload.wanted == 0:
            yield from _none_wanted(cluster, name)
        elif workload.removes_files:
            yield _removal(cluster, workload)
        elif workload.ready < workload.wanted:
            told = failure if workload.ready == 0 or name == "aliquot-agent" else warning
            yield told(
                f"{name}: {workload.ready} of {workload.wanted} pods are ready.",
                f"kubectl -n {cluster.namespace} describe pods --selector "
                f"app.kubernetes.io/component={name.removeprefix('aliquot-')}, and their logs.",
                [name],
            )
        else:
            whole.append(f"{name} {workload.ready}/{workload.wanted}")
    if whole:
        yield ok(f"ready: {', '.join(whole)}")
    yield from _lonely(cluster)


def _removal(cluster: Cluster, agent: Workload) -> Told:
    """How far the agents are that remove their files."""
    seen = f"aliquot-agent removes its files (agent.removeFiles=true): done on {agent.ready} of {agent.wanted} nodes."
    if agent.ready < agent.wanted:
        return warning(
            f"{seen} Pods with slices are still on the others.",
            f"kubectl -n {cluster.namespace} logs --selector app.kubernetes.io/component=agent --prefix names them: "
            "delete them, or set agent.removeFiles=false to go on using the nodes.",
            ["aliquot-agent"],
        )
    return warning(
        seen,
        "helm uninstall takes the rest away (docs/install.md); agent.removeFiles=false shares the cards again.",
        ["aliquot-agent"],
    )


def _lonely(cluster: Cluster) -> Iterator[Told]:
    """kube-schedulers that run beside an extender that does not."""
    for pod in cluster.own_pods.get():
        status = pod.status
        found = {one.name: one for one in (*status.init_container_statuses, *status.container_statuses)}
        extender, beside = found.get("extender"), found.get("kube-scheduler")
        if not extender or not beside or extender.ready or "running" not in beside.state:
            continue
        state, why = next(iter(extender.state.items()), ("unknown", {}))
        name = pod.metadata.name
        yield failure(
            f"in pod {name} kube-scheduler runs and its extender does not answer ({why.get('reason') or state}, "
            f"{count(extender.restart_count, 'restart')}): while this kube-scheduler leads, no pod with a slice is "
            "scheduled.",
            f"kubectl -n {cluster.namespace} logs {name} -c extender --previous; to have it started anew at once: "
            f"kubectl -n {cluster.namespace} delete pod {name}",
            [name],
        )


def _absent(cluster: Cluster, name: str) -> Iterator[Told]:
    if name == "aliquot-certs":
        if cluster.secret("aliquot-webhook-tls") is None:
            yield failure(
                "aliquot-certs is not there, and no certificate either.",
                "See certificates.mode in docs/chart.md: self makes them, existing needs the Secrets beforehand.",
            )
        return
    if name == "aliquot-agent" and cluster.sharing:
        yield not_checked(
            "aliquot-agent is no DaemonSet here, and nodes share their cards: agents that were started otherwise are "
            "not looked at",
            "aliquot doctor --node looks at each.",
        )
        return
    yield failure(
        f"{name} is not installed in namespace {cluster.namespace}.",
        "If Aliquot is in another namespace, name it with --namespace; if not, install the chart (docs/install.md).",
        [name],
    )


def _none_wanted(cluster: Cluster, name: str) -> Iterator[Told]:
    if name == "aliquot-agent":
        yield warning(
            "aliquot-agent runs on no node: none has a label that says there are GPUs.",
            "kubectl label node NODE aliquot.dev/gpu-node=true",
        )
    else:
        yield failure(
            f"{name} has 0 replicas.",
            f"kubectl -n {cluster.namespace} scale deployment {name} --replicas {USUAL_REPLICAS[name]}",
            [name],
        )


def services(cluster: Cluster) -> Iterator[Told]:
    """Webhook and extender answer through their Services."""
    for name, fact in sorted(cluster.ready.items()):
        if cluster.workload(name) is None:
            continue
        try:
            why = fact.get()
        except NotKnownError as error:
            yield not_checked(str(error))
            continue
        if why:
            yield failure(
                f"{name} is not ready: {why}",
                f"kubectl -n {cluster.namespace} logs deployment/{name} --all-containers; see that the Service has "
                "endpoints and that network policies let the API server in.",
                [name],
            )
        else:
            yield ok(f"{name} answers /readyz through its Service")


def definitions(cluster: Cluster) -> Iterator[Told]:
    """The CRDs, with the version that our programs read."""
    good = list[str]()
    for name, fact in sorted(cluster.definitions.items()):
        definition = fact.get()
        if definition is None:
            yield failure(f"there is no CRD {name}.", f"{UPGRADE} --set crds.install=true", [name])
            continue
        served = {one.name for one in definition.spec.versions if one.served}
        established = any(
            c.type == "Established" and c.status == "True" for c in definition.status.conditions or ()
        )
        if API_VERSION not in served:
            yield failure(
                f"CRD {name} serves {some(served) or 'nothing'}, Aliquot needs {API_VERSION}.",
                f"{UPGRADE} --set crds.install=true",
                [name],
            )
        elif not established:
            yield failure(f"CRD {name} is not established.", f"kubectl describe crd {name}", [name])
        else:
            good.append(name)
    if good:
        yield ok(f"{API_VERSION} of {', '.join(good)}")
