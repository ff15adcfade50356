"""A cluster that somebody has already, named by ALIQUOT_TEST_KUBECONFIG: looked at with care, and left as it was.

KUBECONFIG alone is never used: it names the cluster that people work with. Nothing is written but a namespace of a name
of its own, which is deleted at the end if it still is the one that was made; all else is asked for as a dry run.
"""

import base64
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any, Final, Self

import yaml

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.kubectl import Kubectl
from tests.cluster.access import write_kubeconfig

VARIABLE: Final = "ALIQUOT_TEST_KUBECONFIG"
PREFIX: Final = "aliquot-test-"
APPLY: Final = "application/apply-patch+yaml"
INLINE: Final = {
    "certificate-authority-data": "certificate-authority",
    "client-certificate-data": "client-certificate",
    "client-key-data": "client-key",
}
"""What a kubeconfig may hold itself, and what names a file in its place."""

Json = dict[str, Any]


class KubeconfigError(Exception):
    """A kubeconfig that the tests cannot use; the message says why."""


def given() -> Path | None:
    """The kubeconfig that tests are to use, where somebody has said so."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else None


class Existing:
    """The cluster of a kubeconfig's current context, and a namespace of ours in it, by its UID."""

    def __init__(self, kubeconfig: Path) -> None:
        """Read the kubeconfig; KubeconfigError where it cannot be used."""
        self.kubeconfig = kubeconfig
        self._scratch = tempfile.TemporaryDirectory()
        self.kubectl = Kubectl(written_out(kubeconfig, Path(self._scratch.name)))
        self.namespace = f"{PREFIX}{secrets.token_hex(4)}"

    def __enter__(self) -> Self:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        self.uid = self.kubectl.create(made)["metadata"]["uid"]
        return self

    def __exit__(self, *_: object) -> None:
        body = {"preconditions": {"uid": self.uid}}
        self.kubectl.request("DELETE", f"/api/v1/namespaces/{self.namespace}", body)
        self._scratch.cleanup()

    def refusal(self, obj: Json) -> str:
        """Why the cluster would not have an object, new or in place of one that is there; empty where it would."""
        group, _, version = obj["apiVersion"].rpartition("/")
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            served = self.kubectl.request("GET", root)["resources"]
            entry = next(one for one in served if one["kind"] == obj["kind"] and "/" not in one["name"])
            namespace = obj["metadata"].get("namespace", self.namespace)
            inside = f"/namespaces/{namespace}" if entry["namespaced"] else ""
            path = f"{root}{inside}/{entry['name']}/{obj['metadata']['name']}"
            query = {"dryRun": "All", "fieldManager": PREFIX.rstrip("-"), "force": "true"}
            self.kubectl.request("PATCH", path, obj, query, APPLY)
        except ApiError as error:
            return f"{obj['kind']} {obj['metadata']['name']}: {error}"
        except StopIteration:
            return f"{obj['kind']} {obj['metadata']['name']}: {obj['apiVersion']} has no such kind"
        return ""


def written_out(kubeconfig: Path, directory: Path) -> Path:
    """A kubeconfig of the current context alone, with what it holds itself in files of this directory.

    Raises:
        KubeconfigError: it cannot be read, or asks a program for credentials.
    """
    try:
        document = yaml.safe_load(kubeconfig.read_text())
        context = _named(document, "context", document["current-context"])
        cluster, user = (_named(document, kind, context[kind]) for kind in ("cluster", "user"))
    except (OSError, yaml.YAMLError, KeyError, TypeError, StopIteration) as error:
        raise KubeconfigError(f"{VARIABLE}: {kubeconfig} cannot be read: {error!r}") from error
    if not {"token", "client-certificate", "client-certificate-data"} & user.keys():
        raise KubeconfigError(f"{VARIABLE}: {kubeconfig} has neither a token nor a client certificate")
    for settings in (cluster, user):
        for inline, file in INLINE.items():
            if inline in settings:
                path = directory / file
                path.touch(0o600)
                path.write_bytes(base64.b64decode(settings.pop(inline)))
                settings[file] = str(path)
            elif file in settings:
                settings[file] = str(kubeconfig.parent / settings[file])
    return write_kubeconfig(directory / "kubeconfig", cluster, user)


def _named(document: Json, kind: str, name: str) -> Json:
    """The part of a kubeconfig that has this name."""
    return dict(next(one[kind] for one in document[f"{kind}s"] if one["name"] == name))
