"""Aliquot on a cluster that somebody has: only on the one that they name, and taken away again, whatever happens.

What a test makes there is of three kinds: the chart's release, in a namespace that was not there; what belongs to the
cluster as a whole, by names that begin with `aliquot-trial-`; and what lies in namespaces of such names. A cluster that
has any of it before is refused, so that in the end all of it is ours to delete.

No node runs any of it: the chart's pods have a node selector that none fulfils, those of tests stay on Nodes that are
mere objects. Users who call are impersonated; accounts have tokens, and are gone in the end.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

import yaml

from aliquot.sandbox.cluster.kubectl import Kubectl
from tests.cluster.access import token, write_kubeconfig
from tests.cluster.existing import VARIABLE, written_out
from tests.cluster.helm import NAME, NAMESPACE, HelmRelease, rendered, resource_of

WORD: Final = "ALIQUOT_TEST_INSTALL_ON"
PREFIX: Final = "aliquot-trial-"
GONE_S: Final = 120.0
OURS: Final = (
    "clusterrolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "nodes",
    "namespaces",
)
"""Kinds of a whole cluster that tests make something of, in the order in which it is deleted."""
CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
LET_IN: Final = {"pod-security.kubernetes.io/enforce": "privileged"}
"""It is Aliquot's policies that shall refuse pods, and nothing before them."""


class RefusedError(Exception):
    """Nothing was done to a cluster that somebody has; the message says why."""


def asked_for() -> bool:
    """Whether somebody has named the cluster on which Aliquot may be installed."""
    return bool(os.environ.get(WORD))


class Trial:
    """The cluster of a kubeconfig's current context, lent for tests: everything of ours is gone after it.

    Raises:
        RefusedError: no kubeconfig; and on entering: the context is another than `named`, its user may not do
            everything, or the cluster has Aliquot, or something by our names, already.
        KubeconfigError: the kubeconfig cannot be used.
    """

    def __init__(self, kubeconfig: Path | None, named: str) -> None:
        if kubeconfig is None:
            raise RefusedError(f"{WORD}: it takes {VARIABLE}, too")
        self._scratch = tempfile.TemporaryDirectory()
        self._directory = Path(self._scratch.name)
        self._given, self._named = kubeconfig, named
        self.kubeconfig = written_out(kubeconfig, self._directory)
        document = yaml.safe_load(self.kubeconfig.read_text())
        self._cluster, self._user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self.kubectl = Kubectl(self.kubeconfig)
        self.release = HelmRelease(self)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as otherwise:
            otherwise.callback(self._scratch.cleanup)
            self._check()
            otherwise.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take everything away; what fails keeps nothing else from being done."""
        with contextlib.ExitStack() as steps:
            steps.callback(self._scratch.cleanup)
            steps.callback(self._await_nothing)
            steps.callback(self._delete_ours)
            steps.callback(self._delete_remains)
            steps.callback(self.release.helm, "uninstall", NAME, "--ignore-not-found")

    # ---- as a test's cluster ----

    def user(self, name: str, *groups: str) -> Path:
        """A kubeconfig of whoever has lent the cluster, in the name of any user in any groups."""
        other = {"as": name, "as-groups": list(groups)}
        path = self._directory / f"{name.replace(':', '-')}.kubeconfig"
        return write_kubeconfig(path, self._cluster, {**self._user, **other})

    def service_account(self, namespace: str, name: str, *, pod: str = "", node: str = "") -> Path:
        """A kubeconfig of a ServiceAccount that exists, its token bound to a pod or a node where one is named."""
        path = self._directory / f"{'+'.join(filter(None, (namespace, name, pod, node)))}.kubeconfig"
        held = token(self.kubectl, namespace, name, pod, node)
        return write_kubeconfig(path, self._cluster, {"token": held})

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Make a namespace and wait for its default account; one that is there is left as it is."""
        if self.kubectl.find("namespaces", name, ""):
            return
        metadata = {"name": name, "labels": {**LET_IN, **(labels or {})}}
        self.kubectl.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self.kubectl.wait_for("serviceaccounts", "default", lambda _: True, GONE_S, name)

    # ---- before ----

    def _check(self) -> None:
        if reason := self._reason():
            raise RefusedError(f"{WORD}: nothing was installed: {reason}")

    def _reason(self) -> str:
        """Why nothing is done on this cluster; empty where it can be."""
        context = yaml.safe_load(self._given.read_text())["current-context"]
        if context != self._named:
            return f"it names {self._named}, and the current context of {VARIABLE} is {context}"
        if not self._may_do_everything():
            return f"the user of {VARIABLE} may not do everything there, as cluster-admin may"
        found = sorted(self._there())
        return f"there is already {', '.join(found)}" if found else ""

    def _may_do_everything(self) -> bool:
        everything = {"group": "*", "version": "*", "resource": "*", "verb": "*"}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": everything},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self.kubectl.request("POST", path, review)["status"]["allowed"])

    def _there(self) -> Iterator[str]:
        """What the cluster has of Aliquot, or of an earlier trial, in words."""
        for each in rendered():
            if self.release.find(each):
                yield f"{each['kind']} {each['metadata']['name']}"
        for crd in self.kubectl.list(CRDS):
            if crd["metadata"]["name"].endswith(".aliquot.dev"):
                yield f"CustomResourceDefinition {crd['metadata']['name']}"
        for secret in self.kubectl.list("secrets", labelSelector=f"owner=helm,name={NAME}"):
            yield f"a release of Helm's, {secret['metadata']['namespace']}/{NAME}"
        for resource, name in self._ours():
            yield f"{resource} {name}"

    def _ours(self) -> list[tuple[str, str]]:
        """What there is by our names, by its resource."""
        return [
            (resource, name)
            for resource in OURS
            for each in self.kubectl.list(resource)
            for name in [each["metadata"]["name"]]
            if name.startswith(PREFIX) or (resource == "namespaces" and name == NAMESPACE)
        ]

    # ---- after ----

    def _delete_remains(self) -> None:
        """What Helm has not taken away, because it had not noted it yet."""
        for each in rendered():
            if self.release.find(each):
                metadata = each["metadata"]
                self.kubectl.delete(resource_of(each), metadata["name"], metadata.get("namespace", ""))

    def _delete_ours(self) -> None:
        for pod in self.kubectl.list("pods", "kube-system"):
            if pod["metadata"]["name"].startswith(PREFIX):
                self.kubectl.delete("pods", pod["metadata"]["name"], "kube-system", grace=0)
        for resource, name in self._ours():
            self.kubectl.delete(resource, name, "")

    def _await_nothing(self) -> None:
        for resource, name in self._ours():
            self.kubectl.wait_gone(resource, name, GONE_S, "")
        for each in rendered():
            if each["kind"] == "CustomResourceDefinition":
                self.kubectl.wait_gone(CRDS, each["metadata"]["name"], GONE_S, "")
