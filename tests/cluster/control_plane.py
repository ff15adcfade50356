"""A control plane of real components on loopback: etcd, kube-apiserver, and what else a test wants of it.

    with ControlPlane() as plane:
        plane.kubectl.apply(...)                                # as cluster-admin
        Kubectl(plane.user("ann", "developers"))                # anybody, by client certificate
        Kubectl(plane.service_account("default", "ann", pod="web-0"))   # a token bound to a pod, its node in its claims

Authorization is Node and RBAC, admission that of kube-apiserver's defaults with NodeRestriction. Nothing of it
outlives the process that started it, however that ends.
"""

import os
import shutil
import ssl
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.processes import Process, free_port, wait_for
from tests.cluster.access import is_served, token, write_kubeconfig
from tests.cluster.authority import Authority, Identity, key_pem
from tests.cluster.programs import program

LOOPBACK = "127.0.0.1"
SERVICE_NETWORK = "10.96.0.0/24"
API_SERVICE = "10.96.0.1"
"""The first address of the network: that of the Service `kubernetes`."""
ROOMY = 2 << 30
START_S = 120.0
_HEALTH = {"kube-apiserver": "readyz"}
"""The others say that they are ready by being healthy."""
MORTAL = ("setpriv", "--pdeathsig", "KILL", "--")
"""The kernel kills what is started so when its parent has ended."""


def scratch_directory(prefix: str) -> Path:
    """A new directory, in memory where there is enough of it."""
    memory = Path("/dev/shm")  # noqa: S108 - a random name below it
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > ROOMY
    return Path(tempfile.mkdtemp(prefix=prefix, dir=memory if roomy else None))


class ControlPlane:
    """etcd and kube-apiserver; others when asked. Leaving the context ends them and removes their files.

    `flags` are further ones of kube-apiserver. The programs are looked for at once, so that NotAvailableError is raised
    before anything runs.
    """

    def __init__(self, *flags: str) -> None:
        self._programs = {name: program(name) for name in ("etcd", "kube-apiserver")}
        self._flags = flags
        self.root = scratch_directory("aq-plane-")
        self.processes: dict[str, Process] = {}
        self.authority = Authority(self.root / "pki")
        self.server = f"https://{LOOPBACK}:{free_port()}"
        self.kubeconfig = self.user("admin", "system:masters")
        self.kubectl = Kubectl(self.kubeconfig)

    def __enter__(self) -> Self:
        try:
            self._start_etcd()
            self._start_apiserver()
            self._await_default_namespace()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def down(self) -> None:
        """End every process, the latest first, and remove the files."""
        for process in reversed(self.processes.values()):
            process.kill()
        _keep_logs(self.root)
        shutil.rmtree(self.root, ignore_errors=True)

    # ---- who may call ----

    def user(self, name: str, *groups: str) -> Path:
        """A kubeconfig of any user in any groups; `system:masters` may do everything."""
        identity = self.authority.user(name, groups)
        credentials = {"client-certificate": str(identity.certificate), "client-key": str(identity.key)}
        return self._write_kubeconfig(identity.certificate.stem, credentials)

    def service_account(self, namespace: str, name: str, *, pod: str = "", node: str = "") -> Path:
        """A kubeconfig of a ServiceAccount that exists, its token bound to a pod or a node where one is named."""
        held = token(self.kubectl, namespace, name, pod, node)
        return self._write_kubeconfig("+".join(filter(None, (namespace, name, pod, node))), {"token": held})

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Make a namespace and its default account, without which no pod is let in: its controller may not run."""
        self.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": dict(labels or {})},
            }
        )
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name},
        }
        self.kubectl.apply(account)

    def _write_kubeconfig(self, name: str, credentials: Mapping[str, str]) -> Path:
        cluster = {"server": self.server, "certificate-authority": str(self.authority.certificate)}
        return write_kubeconfig(self.root / f"{name}.kubeconfig", cluster, credentials)

    def define(self, *manifests: Path) -> None:
        """Bring in CustomResourceDefinitions; return once the API server serves and tells of what they define."""
        for crd in self.kubectl.apply(*manifests):
            name = crd["metadata"]["name"]
            wait_for(f"{name} to be served", partial(is_served, self.kubectl, crd["spec"]), START_S)

    def await_priorities(self, *names: str) -> None:
        """Return once pods of these priority classes are let in: admission hears of classes by a watch."""
        for name in names:
            wait_for(f"priority class {name}", partial(self._knows_priority, name), START_S)

    def may(self, user: str, **attributes: object) -> bool:
        """Whether a user may do something, in the words of a SubjectAccessReview: RBAC has its roles by a watch."""
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        answer = self.kubectl.request("POST", path, {**review, "spec": {"user": user, **attributes}})
        return bool(answer["status"]["allowed"])

    def _knows_priority(self, name: str) -> bool:
        spec = {"priorityClassName": name, "containers": [{"name": "main", "image": "x"}]}
        trial = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial"}, "spec": spec}
        try:
            self.kubectl.request("POST", "/api/v1/namespaces/default/pods", trial, {"dryRun": "All"})
        except ApiError as error:
            if "no PriorityClass with name" not in str(error):
                raise
            return False
        return True

    # ---- processes ----

    def start_controllers(self) -> None:
        """Start kube-controller-manager: accounts, garbage collection, nodes' health, workloads."""
        port = free_port()
        kubeconfig = self.user("system:kube-controller-manager")
        flags = {
            "kubeconfig": kubeconfig,
            "service-account-private-key-file": self.root / "accounts.key",
            "root-ca-file": self.authority.certificate,
            "use-service-account-credentials": "true",
            "leader-elect": "false",
            "bind-address": LOOPBACK,
            "secure-port": port,
        }
        self._start("kube-controller-manager", flags, port)

    def start_scheduler(
        self, configuration: Mapping[str, Any] | None = None, name: str = "kube-scheduler"
    ) -> None:
        """Start a kube-scheduler: the default one, or one with a KubeSchedulerConfiguration, without election."""
        port = free_port()
        document: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            **(configuration or {}),
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.user("system:kube-scheduler"))},
        }
        path = self.root / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        flags = {"config": path, "bind-address": LOOPBACK, "secure-port": port}
        self._start("kube-scheduler", flags, port, name=name)

    def kill(self, name: str) -> None:
        """SIGKILL one process."""
        self.processes[name].kill()

    def restart(self, name: str) -> None:
        """Start a process again with its old command line; one that still runs is killed first."""
        self.processes[name].kill()
        self.processes[name].start(START_S)

    def start(self, name: str, argv: list[str], ready: Callable[[], bool] | None = None) -> Process:
        """Start any program and wait until it is ready; its log lies in the root."""
        process = Process(name, [*MORTAL, *argv], self.root / f"{name}.log", None, ready)
        self.processes[name] = process
        process.start(START_S)
        return process

    def _start(self, binary: str, flags: Mapping[str, object], port: int, *more: str, name: str = "") -> None:
        given = [f"--{flag}={value}" for flag, value in flags.items()]
        path = self._programs.get(binary) or program(binary)
        self.start(
            name or binary,
            [str(path), *given, *more],
            partial(healthy, f"https://{LOOPBACK}:{port}/{_HEALTH.get(binary, 'healthz')}"),
        )

    def _start_etcd(self) -> None:
        client, peer = (f"http://{LOOPBACK}:{free_port()}" for _ in range(2))
        flags = {
            "data-dir": self.root / "etcd",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "log-level": "warn",
        }
        given = [f"--{flag}={value}" for flag, value in flags.items()]
        argv = [str(self._programs["etcd"]), *given, "--unsafe-no-fsync"]
        self.start("etcd", argv, partial(healthy, f"{client}/health"))
        self._etcd = client

    def _start_apiserver(self) -> None:
        port = int(self.server.rpartition(":")[2])
        hosts = (LOOPBACK, "localhost", API_SERVICE, "kubernetes.default.svc")
        serving = self.authority.server("kube-apiserver", hosts)
        to_kubelets = self.authority.user("kube-apiserver-kubelet-client", ["system:masters"])
        flags = {
            "etcd-servers": self._etcd,
            "bind-address": LOOPBACK,
            "advertise-address": LOOPBACK,
            "endpoint-reconciler-type": "none",  # it would refuse a loopback address
            "secure-port": port,
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "service-cluster-ip-range": SERVICE_NETWORK,
            "allow-privileged": "true",
            "kubelet-preferred-address-types": "Hostname,InternalIP",
            "kubelet-client-certificate": to_kubelets.certificate,
            "kubelet-client-key": to_kubelets.key,
            **self._access_flags(),
        }
        self._start("kube-apiserver", flags, port, *self._flags)

    def _access_flags(self) -> dict[str, object]:
        """Who is who, and who may do what."""
        accounts = _signing_key(self.root)
        return {
            "client-ca-file": self.authority.certificate,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": accounts.certificate,
            "service-account-signing-key-file": accounts.key,
        }

    def _await_default_namespace(self) -> None:
        """The namespace comes a moment after the server is ready."""
        self.kubectl.wait_for("namespaces", "default", lambda _: True, START_S, namespace="")
        self.namespace("default")


def _keep_logs(root: Path) -> None:
    """Puts all logs where $ALIQUOT_LOGS says, for who looks for a fault."""
    if place := os.environ.get("ALIQUOT_LOGS"):
        directory = Path(place) / root.name
        directory.mkdir(parents=True, exist_ok=True)
        for log in root.glob("*.log"):
            shutil.copy(log, directory)


def _signing_key(directory: Path) -> Identity:
    """The key pair of ServiceAccounts' tokens: public half and private half."""
    key = ec.generate_private_key(ec.SECP256R1())
    files = Identity(directory / "accounts.pub", directory / "accounts.key")
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    files.certificate.write_bytes(public)
    files.key.touch(0o600)
    files.key.write_bytes(key_pem(key))
    return files


def healthy(url: str) -> bool:
    """Whether a GET is answered with 200; certificates are another matter."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:  # noqa: S310 - http(s) of ours
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False
