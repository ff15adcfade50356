"""A blocking client for tests and the demo: apply manifests, look, delete, wait, read logs."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import urllib3
import yaml

from aliquot.sandbox.cluster.client import ApiError, Credentials
from aliquot.sandbox.cluster.objects import Obj, dig, name_of, namespace_of
from aliquot.sandbox.cluster.processes import PATIENCE_SECONDS, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path


APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
NOT_FOUND = 404
FIELD_MANAGER = "kubectl"

Objects = list[Obj]


class Kubectl:
    """Talks to one API server. Resources are named by plural and group: `pods`, `gpunodes.aliquot.dev`."""

    def __init__(self, kubeconfig: Path) -> None:
        credentials = Credentials.of_kubeconfig(kubeconfig)
        self._server = credentials.server
        self._headers = credentials.headers()
        self._pool = urllib3.PoolManager(ssl_context=credentials.trust(), retries=False)
        self._served: dict[str, Objects] = {}

    def apply(self, *manifests: Path | str | Obj) -> Objects:
        """Create (or merge into) every object of files, YAML texts or objects; returns them as stored."""
        return [self._apply(obj) for manifest in manifests for obj in _documents(manifest)]

    def create(self, obj: Obj) -> Obj:
        """Create one object; ApiError when the server refuses."""
        return self.request("POST", self._collection_of(obj), obj)

    def get(self, resource: str, name: str, namespace: str = "default") -> Obj:
        """One object; ApiError 404 when it is not there."""
        return self.request("GET", self._path(resource, namespace, name))

    def find(self, resource: str, name: str, namespace: str = "default") -> Obj | None:
        """One object, or None."""
        try:
            return self.get(resource, name, namespace)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def list(self, resource: str, namespace: str = "", **query: str) -> Objects:
        """Objects of a resource, in one namespace or all; `query`: labelSelector, fieldSelector."""
        items: Objects = self.request("GET", self._path(resource, namespace), query=query)["items"]
        return items

    def patch(self, resource: str, name: str, patch: Obj, namespace: str = "default") -> Obj:
        """Merge-patch one object."""
        return self.request("PATCH", self._path(resource, namespace, name), patch, media_type=MERGE_PATCH)

    def delete(self, resource: str, name: str, namespace: str = "default", grace: int | None = None) -> None:
        """Ask for an object's deletion; one that is not there counts as deleted. `grace` in seconds."""
        options: Obj = {} if grace is None else {"gracePeriodSeconds": grace}
        try:
            self.request("DELETE", self._path(resource, namespace, name), options)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def logs(
        self, pod: str, container: str = "", namespace: str = "default", *, previous: bool = False
    ) -> str:
        """What a container printed."""
        query = {"container": container} if container else {}
        query |= {"previous": "true"} if previous else {}
        return self.text(f"{self._path('pods', namespace, pod)}/log", query)

    def text(self, path: str, query: dict[str, str] | None = None) -> str:
        """What the server says at a path, where that is no JSON: logs, metrics."""
        return self._send("GET", path, None, query or {}, "application/json").decode(errors="replace")

    def events(self, pod: str, namespace: str = "default") -> Sequence[str]:
        """Events of a pod as `Reason: message`, oldest first; not of others that had its name, while it is there."""
        there = self.find("pods", pod, namespace)
        whose = f"involvedObject.name={pod}" + (
            f",involvedObject.uid={there['metadata']['uid']}" if there else ""
        )
        found = self.list("events", namespace, fieldSelector=whose)
        return [f"{event['reason']}: {event['message']}" for event in found]

    def wait_for(
        self,
        resource: str,
        name: str,
        predicate: Callable[[Obj], Any],
        deadline: float = PATIENCE_SECONDS,
        namespace: str = "default",
    ) -> Obj:
        """The object, once `predicate` holds of it; TimeoutError (after seconds) tells how it stood."""
        last: Obj | None = None

        def look() -> Obj | None:
            nonlocal last
            last = self.find(resource, name, namespace)
            return last if last is not None and predicate(last) else None

        try:
            return wait_for(f"{resource} {name}", look, deadline) or {}
        except TimeoutError as error:
            state = None if last is None else last.get("status", last)
            raise TimeoutError(f"{error}; it stands at {json.dumps(state)}") from error

    def wait_phase(
        self, pod: str, *phases: str, deadline: float = PATIENCE_SECONDS, namespace: str = "default"
    ) -> Obj:
        """The pod, once it is in one of these phases."""
        return self.wait_for("pods", pod, lambda obj: dig(obj, "status.phase") in phases, deadline, namespace)

    def wait_gone(
        self, resource: str, name: str, deadline: float = PATIENCE_SECONDS, namespace: str = "default"
    ) -> None:
        """Return once the object is gone."""
        wait_for(f"{resource} {name} to go", lambda: self.find(resource, name, namespace) is None, deadline)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: dict[str, str] | None = None,
        media_type: str = "application/json",
    ) -> Obj:
        """One request to a path; ApiError when it fails, status 0 when the server is away."""
        answer: Obj = json.loads(self._send(method, path, body, query or {}, media_type))
        return answer

    def _send(self, method: str, path: str, body: Any, query: dict[str, str], media_type: str) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = urllib3.HTTPHeaderDict([*self._headers, ("Content-Type", media_type)])
        address = f"{self._server}{path}?{urlencode(query)}" if query else f"{self._server}{path}"
        try:
            reply = self._pool.request(
                method,
                address,
                body=data,
                headers=headers,
                timeout=20,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, "Unreachable", str(error)) from error
        if reply.status >= 400:  # noqa: PLR2004
            raise ApiError.of_answer(reply.status, reply.data)
        return reply.data

    def _apply(self, obj: Obj) -> Obj:
        collection = self._collection_of(obj)
        try:
            return self.request("POST", collection, obj)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return self.request("PATCH", f"{collection}/{name_of(obj)}", obj, query, APPLY_PATCH)

    def _collection_of(self, obj: Obj) -> str:
        version, kind = obj["apiVersion"], obj["kind"]
        entry = self._served_as(version, lambda entry: entry["kind"] == kind and "/" not in entry["name"])
        if entry is None:
            raise ApiError(NOT_FOUND, "NotFound", f'no matches for kind "{kind}" in "{version}"')
        return self._collection(version, entry, namespace_of(obj) or "default")

    def _path(self, resource: str, namespace: str, name: str = "") -> str:
        plural, _, group = resource.partition(".")
        api_version = self._preferred(group) if group else "v1"
        entry = self._served_as(api_version, lambda entry: entry["name"] == plural)
        if entry is None:
            raise ApiError(NOT_FOUND, "NotFound", f'the server doesn\'t have a resource type "{resource}"')
        return self._collection(api_version, entry, namespace) + (f"/{name}" if name else "")

    def _collection(self, api_version: str, entry: Obj, namespace: str) -> str:
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        inside = f"/namespaces/{namespace}" if entry["namespaced"] and namespace else ""
        return f"{root}{inside}/{entry['name']}"

    def _served_as(self, api_version: str, wanted: Callable[[Obj], bool]) -> Obj | None:
        """The first resource of a version that is wanted; the server is asked anew where none was known."""
        found = next(filter(wanted, self._served.get(api_version, ())), None)
        if found is None:
            root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            self._served[api_version] = self.request("GET", root)["resources"]
            found = next(filter(wanted, self._served[api_version]), None)
        return found

    @functools.cache  # noqa: B019 - one client per cluster
    def _preferred(self, group: str) -> str:
        return str(self.request("GET", f"/apis/{group}")["preferredVersion"]["groupVersion"])


def _documents(manifest: Path | str | Obj) -> Iterable[Obj]:
    if isinstance(manifest, dict):
        return [manifest]
    text = manifest if isinstance(manifest, str) else manifest.read_text()
    return [document for document in yaml.safe_load_all(text) if document]
