"""Mutating and validating admission webhooks, called as the real API server calls them.

A mutating webhook with reinvocationPolicy IfNeeded is asked once more when a later one changed the object.
Which webhooks: rules, selectors and matchConditions (CEL, by the `common-expression-language` package; it
lacks the optional syntax `.?`). How: HTTPS with the configuration's CA, `?timeout=Ns`, an AdmissionReview v1.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import ssl
import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import aiohttp
import cel

from aliquot.sandbox.cluster.apiserver import errors
from aliquot.sandbox.cluster.apiserver.patch import json_patch
from aliquot.sandbox.cluster.apiserver.selectors import selector_of
from aliquot.sandbox.cluster.objects import dig, name_of, namespace_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aliquot.sandbox.cluster.apiserver.resources import Resource
    from aliquot.sandbox.cluster.apiserver.store import Store
    from aliquot.sandbox.cluster.apiserver.strategy import Strategy
    from aliquot.sandbox.cluster.objects import Obj

GROUP = "admissionregistration.k8s.io"
USER = {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]}


class CallError(Exception):
    """A webhook could not be asked, or answered with nothing usable."""


@dataclass(frozen=True)
class Attempt:
    """One request on its way through admission."""

    resource: Resource
    operation: str  # CREATE, UPDATE, DELETE
    object: Obj | None
    old: Obj | None = None
    dry_run: bool = False
    options: Obj | None = None

    @property
    def subject(self) -> Obj:
        """The object that selectors look at."""
        return self.object or self.old or {}


class Admission:
    """Asks the webhooks that are configured in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections to webhooks."""
        if self._session is not None:
            await self._session.close()

    async def mutate(self, attempt: Attempt, strategy: Strategy) -> tuple[Obj | None, list[str]]:
        """The object after all mutating webhooks, and their warnings; StatusError if one refuses or fails."""
        obj = attempt.object
        warnings: list[str] = []
        left_behind: list[tuple[Obj, Obj | None]] = []
        for webhook in self._matching("mutatingwebhookconfigurations", attempt):
            called, obj = await self._mutate_by(webhook, _with(attempt, obj), strategy, warnings)
            if called and webhook.get("reinvocationPolicy") == "IfNeeded":
                left_behind.append((webhook, obj))
        for webhook, seen in left_behind:
            if seen != obj:
                _, obj = await self._mutate_by(webhook, _with(attempt, obj), strategy, warnings)
        return obj, warnings

    async def _mutate_by(
        self, webhook: Obj, attempt: Attempt, strategy: Strategy, warnings: list[str]
    ) -> tuple[bool, Obj | None]:
        """Whether the webhook was asked, and the object after it; its warnings are appended."""
        response = await self._ask(webhook, attempt)
        if response is None:
            return False, attempt.object
        warnings += response.get("warnings") or []
        if attempt.object is None or not response.get("patch"):
            return True, attempt.object
        patched = _patched(webhook, attempt.object, response)
        strategy.default(patched)
        return True, patched

    async def validate(self, attempt: Attempt) -> list[str]:
        """Ask all validating webhooks; returns their warnings, StatusError when one refuses or fails."""
        warnings: list[str] = []
        for webhook in self._matching("validatingwebhookconfigurations", attempt):
            response = await self._ask(webhook, attempt)
            warnings += (response or {}).get("warnings") or []
        return warnings

    def _matching(self, plural: str, attempt: Attempt) -> Iterator[Obj]:
        if attempt.resource.group == GROUP:
            return
        for configuration in self._store.list(f"{plural}.{GROUP}"):
            for webhook in configuration.get("webhooks") or ():
                if self._selects(webhook, attempt):
                    yield webhook

    def _selects(self, webhook: Obj, attempt: Attempt) -> bool:
        if not any(_rule_matches(rule, attempt) for rule in webhook.get("rules") or ()):
            return False
        namespace = self._store.get("namespaces", "", namespace_of(attempt.subject)) or {}
        return selector_of(webhook.get("namespaceSelector")).matches(namespace) and selector_of(
            webhook.get("objectSelector")
        ).matches(attempt.subject)

    async def _ask(self, webhook: Obj, attempt: Attempt) -> Obj | None:
        """The webhook's response; None when it does not apply or its failure is to be ignored."""
        review = _review(attempt)
        try:
            if not _conditions_hold(webhook, review["request"]):
                return None
            response = await self._call(webhook, review)
        except CallError as error:
            if webhook.get("failurePolicy") == "Ignore":
                return None
            raise errors.internal(f'failed calling webhook "{webhook["name"]}": {error}') from error
        if not response.get("allowed"):
            raise _denial(webhook["name"], response.get("status") or {})
        return response

    async def _call(self, webhook: Obj, review: Obj) -> Obj:
        url, server_name = self._address(webhook["clientConfig"])
        seconds = int(webhook.get("timeoutSeconds", 10))
        url = f"{url}?timeout={seconds}s"
        try:
            answer = await self._post(url, server_name, webhook["clientConfig"], review, seconds)
        except TimeoutError as error:
            raise CallError(f'failed to call webhook: Post "{url}": context deadline exceeded') from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise CallError(f'failed to call webhook: Post "{url}": {error}') from error
        response = answer.get("response") if isinstance(answer, dict) else None
        if not isinstance(response, dict) or response.get("uid") != review["request"]["uid"]:
            raise CallError("received invalid webhook response: expected response.uid of the request")
        return response

    async def _post(self, url: str, server_name: str | None, config: Obj, review: Obj, seconds: int) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers={"User-Agent": "kube-apiserver-admission"})
        request = self._session.post(
            url,
            json=review,
            ssl=_trust(config.get("caBundle", "")),
            server_hostname=server_name,
            timeout=aiohttp.ClientTimeout(total=seconds),
        )
        async with request as reply:
            text = await reply.text()
            if reply.status != 200:  # noqa: PLR2004
                raise CallError(f"an error on the server ({text[:200]!r}), code {reply.status}")
        return json.loads(text)

    def _address(self, config: Obj) -> tuple[str, str | None]:
        """URL, and the name in the certificate where that is not the URL's.

        There is no service network: a Service must be of type ExternalName, and its certificate be for
        `<name>.<namespace>.svc` as on a real cluster.
        """
        if url := config.get("url"):
            return str(url), None
        wanted = config.get("service") or {}
        namespace, name = wanted.get("namespace", ""), wanted.get("name", "")
        service = self._store.get("services", namespace, name)
        if service is None:
            raise CallError(f'failed to call webhook: service "{name}" not found')
        host = dig(service, "spec.externalName")
        if not host:
            raise CallError(f'failed to call webhook: no endpoints available for service "{name}"')
        port, path = wanted.get("port", 443), wanted.get("path", "/")
        return f"https://{host}:{port}{path}", f"{name}.{namespace}.svc"


def _with(attempt: Attempt, obj: Obj | None) -> Attempt:
    return dataclasses.replace(attempt, object=obj)


def _rule_matches(rule: Obj, attempt: Attempt) -> bool:
    def covers(field: str, value: str) -> bool:
        return value in rule.get(field, ()) or "*" in rule.get(field, ())

    resource = attempt.resource
    scope = {"Namespaced": True, "Cluster": False}.get(rule.get("scope", "*"), resource.namespaced)
    return (
        scope is resource.namespaced
        and covers("apiGroups", resource.group)
        and covers("apiVersions", resource.version)
        and covers("operations", attempt.operation)
        and covers("resources", resource.plural)
    )


def _review(attempt: Attempt) -> Obj:
    resource = attempt.resource
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    plural = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    request: Obj = {
        "uid": str(uuid.uuid4()),
        "kind": kind,
        "resource": plural,
        "requestKind": kind,
        "requestResource": plural,
        "name": name_of(attempt.subject),
        "namespace": namespace_of(attempt.subject),
        "operation": attempt.operation,
        "userInfo": USER,
        "object": attempt.object,
        "oldObject": attempt.old,
        "dryRun": attempt.dry_run,
        "options": attempt.options,
    }
    if not request["namespace"]:
        del request["namespace"]
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def _conditions_hold(webhook: Obj, request: Obj) -> bool:
    """All matchConditions true; one false decides, even beside one that fails. CallError when one fails."""
    broken = ""
    variables = {"object": request["object"], "oldObject": request["oldObject"], "request": request}
    for condition in webhook.get("matchConditions") or ():
        try:
            if cel.evaluate(condition["expression"], variables) is not True:
                return False
        except (ValueError, KeyError, TypeError, RuntimeError) as error:
            broken = f'match condition "{condition["name"]}": {error}'
    if broken:
        raise CallError(broken)
    return True


@lru_cache(maxsize=16)
def _trust(bundle: str) -> ssl.SSLContext:
    """One context a bundle: connections are kept by it, as the real one keeps a client for each webhook."""
    if not bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    except (binascii.Error, ssl.SSLError, ValueError) as error:
        raise CallError(f"unable to load root certificates: {error}") from error


def _patched(webhook: Obj, obj: Obj, response: Obj) -> Obj:
    name = webhook["name"]
    if response.get("patchType") != "JSONPatch":
        raise errors.internal(f'admission webhook "{name}" returned an unknown patchType')
    try:
        return json_patch(obj, json.loads(base64.b64decode(response["patch"])))
    except (ValueError, errors.StatusError) as error:
        raise errors.internal(f'admission webhook "{name}": unusable patch: {error}') from error


def _denial(name: str, status: Obj) -> errors.StatusError:
    said = status.get("message") or status.get("reason")
    message = f'admission webhook "{name}" denied the request' + (
        f": {said}" if said else " without explanation"
    )
    code = max(int(status.get("code") or 0), 400)
    return errors.StatusError(code, status.get("reason") or "", message, status.get("details"))
