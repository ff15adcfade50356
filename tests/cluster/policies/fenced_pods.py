"""Attempts to have beside a slice what reaches cards that were not given."""

from typing import Any

from aliquot.sandbox.cluster.objects import Obj
from tests.cluster.policies.attempts import APPLY, SLICES, STRATEGIC, Attempt, creating, patching
from tests.cluster.policies.manifests import (
    LIBRARY,
    UID_OF_NODE_A,
    container,
    ephemeral,
    host_path,
    plain,
    pod,
)


def _of_slices(what: str, says: str, made: Obj, who: str = "alice") -> Attempt:
    return creating(f"creates a pod with {what}", SLICES, says, made, who)


def _with_env(what: str, *env: Obj, says: str = "") -> Attempt:
    return _of_slices(
        what,
        says or f"the environment of container main ({env[-1]['name']}) is Aliquot's to set",
        pod("bad", container(env=list(env))),
    )


def _with_path(path: str) -> Attempt:
    return _of_slices(
        f"host path {path}",
        f"hostPath {path} leads to devices or to what Aliquot",
        pod("bad", volumes=host_path(path)),
    )


def _preloading(what: str, *env: Obj) -> Attempt:
    made = pod("bad")
    made["spec"]["containers"][0]["env"] = list(env)
    return _of_slices(what, f"LD_PRELOAD of container main does not begin with {LIBRARY}", made)


NOT_ASKED = "the webhook, which writes aliquot-scheduler in its place, has not changed this pod"
PRIVILEGED = {"securityContext": {"privileged": True}}
PAGES = [{"name": "aliquot-usage-0", "emptyDir": {"medium": "Memory", "sizeLimit": "128Ki"}}]
REACHES = [{"name": "aliquot-usage-0", "mountPath": "/data"}]
FROM_SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}


def _with_capability(name: str) -> Attempt:
    capable = container(securityContext={"capabilities": {"add": ["CHOWN", name]}})
    says = f"capability of container main ({name}) reaches beyond the container"
    return _of_slices(f"the capability {name}", says, pod("bad", capable))


def _pods_with_slices() -> list[Attempt]:
    every_card = "is privileged, so it could use every card of the node"
    sidecar = plain("helper", **PRIVILEGED)
    hami = container(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"})
    mig = container(limits={"aliquot.dev/mig-1g.10gb": "1"}, **PRIVILEGED)
    mirror = pod(
        "mirror",
        annotations={"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "x"},
        nodeName="aliquot-trial-node-a",
        automountServiceAccountToken=False,
    )
    mirror["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "aliquot-trial-node-a",
            "uid": UID_OF_NODE_A,
            "controller": True,
        }
    ]
    return [
        _of_slices(
            "a node",
            "spec.nodeName is aliquot-trial-node-a, which passes by the scheduler",
            pod("bad", nodeName="aliquot-trial-node-a"),
        ),
        _of_slices(
            "the default scheduler",
            f"schedulerName default-scheduler hands out no cards; {NOT_ASKED}",
            pod("bad", schedulerName="default-scheduler"),
        ),
        _of_slices(
            "a scheduler of their own",
            "schedulerName mine hands out no cards",
            pod("bad", schedulerName="mine"),
        ),
        _of_slices(
            "the volume of a usage page in another container",
            "container helper mounts a volume whose name begins with aliquot-usage-",
            pod("bad", container(), plain("helper", volumeMounts=REACHES), volumes=PAGES),
        ),
        _of_slices("hostPID", "hostPID shows it the processes of other tenants", pod("bad", hostPID=True)),
        _of_slices("hostIPC", "hostIPC shares memory with other tenants", pod("bad", hostIPC=True)),
        _of_slices(
            "a privileged container", f"container main {every_card}", pod("bad", container(**PRIVILEGED))
        ),
        _of_slices(
            "a privileged container without a slice",
            f"container helper {every_card}",
            pod("bad", container(), sidecar),
        ),
        _of_slices(
            "a privileged init container",
            f"container helper {every_card}",
            pod("bad", initContainers=[sidecar]),
        ),
        _of_slices(
            "a privileged sidecar",
            f"container helper {every_card}",
            pod("bad", initContainers=[{**sidecar, "restartPolicy": "Always"}]),
        ),
        _of_slices(
            "two privileged containers",
            f"container main, helper {every_card}",
            pod("bad", container(**PRIVILEGED), sidecar),
        ),
        _of_slices(
            "a slice in an init container alone",
            f"container main {every_card}",
            pod("bad", plain(**PRIVILEGED), initContainers=[container("first")]),
        ),
        _of_slices(
            "a MIG instance in a privileged container",
            f"container main {every_card}",
            pod("bad", mig, schedulerName="default-scheduler"),
        ),
        _of_slices(
            "HAMi's resources, past the webhook",
            f"schedulerName default-scheduler hands out no cards; {NOT_ASKED}",
            pod("bad", hami, schedulerName="default-scheduler"),
        ),
        _of_slices(
            "HAMi's resources and hostPID",
            "hostPID shows it",
            pod("bad", {**hami, "env": [{"name": "LD_PRELOAD", "value": LIBRARY}]}, hostPID=True),
        ),
        _of_slices(
            "hostPID, from a template", "hostPID shows it", pod("bad", hostPID=True), "replicaset-controller"
        ),
        _of_slices("hostPID", "hostPID shows it", pod("bad", hostPID=True), "admin"),
        _of_slices("a slice as a static pod", "spec.nodeName is aliquot-trial-node-a", mirror, "kubelet-a"),
    ]


CAPABILITIES = (
    "ALL",
    "all",
    "BPF",
    "CAP_SYS_ADMIN",
    "DAC_READ_SEARCH",
    "LINUX_IMMUTABLE",
    "MKNOD",
    "NET_ADMIN",
    "PERFMON",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_MODULE",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "cap_Sys_Admin",
    "sys_admin",
)
PATHS = (
    "/",
    "/dev",
    "/dev/nvidia0",
    "/dev/",
    "//dev/./shm",
    "/proc",
    "/sys/bus/pci",
    "/var",
    "/var/run",
    "/run",
    "/var/run/cdi",
    "/run/cdi",
    "/etc/cdi",
    "/etc",
    "/var/lib/kubelet",
    "/var/lib/kubelet/device-plugins",
    "/var//lib/./kubelet/pods",
    "/run/aliquot",
    "/var/run/aliquot/host/tenants",
    "/var/lib/aliquot/lib",
    "/run/containerd/containerd.sock",
    "/var/run/docker.sock",
    "/run/crio/crio.sock",
    "/var/run/nvidia/driver",
    "/var/lib/containerd",
    "/var/lib/docker/overlay2",
    "/var/lib/rancher/k3s",
    "/usr",
    "/usr/local/bin",
    "/lib64",
    "/root/.ssh",
)


def _environments() -> list[Attempt]:
    other = {"name": "LD_PRELOAD", "value": "/mine.so"}
    ours = {"name": "LD_PRELOAD", "value": LIBRARY}
    names = (
        "LD_AUDIT",
        "CUDA_DEVICE_MEMORY_LIMIT",
        "CUDA_DEVICE_MEMORY_LIMIT_0",
        "CUDA_DEVICE_SM_LIMIT",
        "CUDA_DISABLE_CONTROL",
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "NVIDIA_GPU_MEMORY_LIMIT",
        "NVIDIA_MIG_CONFIG_DEVICES",
        "NVIDIA_IMEX_CHANNELS",
        "ALIQUOT_CONTROL_PAGE",
        "ALIQUOT_USAGE_PAGE",
    )
    in_init = pod(
        "bad", initContainers=[plain("first", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])]
    )
    return [
        *(_with_env(name, {"name": name, "value": "0"}) for name in names),
        _with_env("NVIDIA_VISIBLE_DEVICES=all", {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}),
        _with_env(
            "NVIDIA_VISIBLE_DEVICES from a Secret",
            {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": FROM_SECRET},
        ),
        _with_env("LD_AUDIT from a Secret", {"name": "LD_AUDIT", "valueFrom": FROM_SECRET}),
        _with_env(
            "two of them",
            {"name": "LD_AUDIT", "value": "x"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"},
            says="container main (LD_AUDIT), main (NVIDIA_VISIBLE_DEVICES) is",
        ),
        _of_slices(
            "NVIDIA_VISIBLE_DEVICES in an init container",
            "container first (NVIDIA_VISIBLE_DEVICES) is",
            in_init,
        ),
        _preloading("no environment"),
        _preloading("no LD_PRELOAD", {"name": "MODE", "value": "fast"}),
        _preloading("LD_PRELOAD of their own", other),
        _preloading("the interceptor second", {"name": "LD_PRELOAD", "value": f"/mine.so:{LIBRARY}"}),
        _preloading(
            "a library beside the interceptor's name", {"name": "LD_PRELOAD", "value": f"{LIBRARY}.mine"}
        ),
        _preloading("LD_PRELOAD twice, the second of their own", ours, other),
        _preloading("LD_PRELOAD from a Secret", {"name": "LD_PRELOAD", "valueFrom": FROM_SECRET}),
        _preloading("LD_PRELOAD without a value", {"name": "LD_PRELOAD"}),
    ]


def _ephemeral(what: str, says: str, media: str = STRATEGIC, who: str = "operator", **more: Any) -> Attempt:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "running"},
        "spec": {"ephemeralContainers": [ephemeral(**more)]},
    }
    return patching(
        f"adds an ephemeral container {what}",
        body,
        media,
        who=who,
        part="ephemeralcontainers",
        policy=SLICES,
        says=says,
    )


def _ephemerals() -> list[Attempt]:
    visible = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    return [
        _ephemeral("that is privileged", "container shell is privileged", **PRIVILEGED),
        _ephemeral(
            "that is privileged, by server-side apply", "container shell is privileged", APPLY, **PRIVILEGED
        ),
        _ephemeral("that is privileged", "container shell is privileged", who="admin", **PRIVILEGED),
        _ephemeral(
            "with SYS_ADMIN",
            "capability of container shell (SYS_ADMIN) reaches",
            securityContext={"capabilities": {"add": ["SYS_ADMIN"]}},
        ),
        _ephemeral("that sees all cards", "container shell (NVIDIA_VISIBLE_DEVICES) is", env=visible),
        _ephemeral(
            "that is privileged and looks into main",
            "container shell is privileged",
            targetContainerName="main",
            **PRIVILEGED,
        ),
    ]


OUTSIDE_THE_FENCE = [
    *_pods_with_slices(),
    *map(_with_capability, CAPABILITIES),
    *map(_with_path, PATHS),
    *_environments(),
    *_ephemerals(),
]
