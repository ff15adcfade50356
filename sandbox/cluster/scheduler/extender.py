"""The client side of the extender protocol: bodies, failures and wording as kube-scheduler has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp

from aliquot.sandbox.cluster.objects import dig, name_of, namespace_of, uid_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aliquot.sandbox.cluster.objects import Obj
    from aliquot.sandbox.cluster.scheduler.config import ExtenderConfig

OK = 200
HIGHEST_SCORE = 10
NODE_SCORE_PER_EXTENDER_SCORE = 10


class ExtenderError(Exception):
    """The extender could not be asked or answered with an error; the text is kube-scheduler's."""


class Extender:
    """One configured extender."""

    def __init__(self, config: ExtenderConfig) -> None:
        self.config = config
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def interested_in(self, pod: Obj) -> bool:
        """Whether the pod asks for one of its managed resources (without any: every pod)."""
        managed = self.config.managed
        if not managed:
            return True
        containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]
        asked = {
            name
            for c in containers
            for kind in ("requests", "limits")
            for name in dig(c, f"resources.{kind}") or ()
        }
        return not asked.isdisjoint(managed)

    async def filter(
        self, pod: Obj, nodes: Mapping[str, Obj]
    ) -> tuple[list[str], dict[str, str], dict[str, str]]:
        """Names of the nodes that stay; why others failed; why others failed for good. ExtenderError."""
        result = await self._call(self.config.filter_verb, self._arguments(pod, nodes))
        if result.get("error"):
            raise ExtenderError(str(result["error"]))
        kept = self._kept(result)
        for name in kept:
            if name not in nodes:
                text = f'extender "{self.config.url}" claims a filtered node "{name}"'
                raise ExtenderError(f"{text} which is not found in the input node list")
        return kept, result.get("failednodes") or {}, result.get("failedandunresolvablenodes") or {}

    async def prioritize(self, pod: Obj, nodes: Mapping[str, Obj]) -> dict[str, int]:
        """Weighted scores by node. ExtenderError (which the real scheduler ignores)."""
        answer = await self._send(self.config.prioritize_verb, self._arguments(pod, nodes))
        scores = {entry["Host"]: int(entry["Score"]) for entry in answer or ()}
        return {
            name: score * self.config.weight * NODE_SCORE_PER_EXTENDER_SCORE for name, score in scores.items()
        }

    async def preempt(
        self, pod: Obj, victims: Mapping[str, tuple[list[Obj], int]]
    ) -> dict[str, tuple[list[str], int]]:
        """Whom to evict, and how many budgets that violates, by node. ExtenderError."""
        by_uid = {
            name: {"Pods": [{"UID": uid_of(one)} for one in pods] or None, "NumPDBViolations": violations}
            for name, (pods, violations) in victims.items()
        }
        body = {"Pod": pod_body(pod), "NodeNameToVictims": None, "NodeNameToMetaVictims": by_uid}
        answer = await self._call(self.config.preempt_verb, body)
        return {
            name: ([one["UID"] for one in entry.get("Pods") or ()], entry.get("NumPDBViolations", 0))
            for name, entry in (answer.get("nodenametometavictims") or {}).items()
        }

    async def bind(self, pod: Obj, node: str) -> None:
        """Have the extender bind. ExtenderError."""
        body = {
            "PodName": name_of(pod),
            "PodNamespace": namespace_of(pod),
            "PodUID": uid_of(pod),
            "Node": node,
        }
        result = await self._call(self.config.bind_verb, body)
        if result.get("error"):
            raise ExtenderError(str(result["error"]))

    def _arguments(self, pod: Obj, nodes: Mapping[str, Obj]) -> Obj:
        if self.config.names_only:
            return {"Pod": pod_body(pod), "Nodes": None, "NodeNames": list(nodes)}
        items = [
            {k: v for k, v in node.items() if k not in ("kind", "apiVersion")} for node in nodes.values()
        ]
        return {"Pod": pod_body(pod), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}

    def _kept(self, result: Obj) -> list[str]:
        if self.config.names_only and result.get("nodenames") is not None:
            return list(result["nodenames"])
        return [name_of(node) for node in (result.get("nodes") or {}).get("items") or ()]

    async def _call(self, verb: str, body: Obj) -> Obj:
        """An object answer with lower-case keys: Go reads them in any case."""
        answer = await self._send(verb, body)
        if not isinstance(answer, dict):
            raise ExtenderError(f"json: cannot unmarshal the answer of {verb} into Go value")
        return {key.lower(): value for key, value in answer.items()}

    async def _send(self, verb: str, body: Obj) -> Any:
        url = f"{self.config.url}/{verb}"
        try:
            async with self._open().post(url, json=body) as reply:
                if reply.status != OK:
                    raise ExtenderError(f"failed {verb} with extender at URL {url}, code {reply.status}")
                return json.loads(await reply.read())
        except TimeoutError as error:
            why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            raise ExtenderError(f'Post "{url}": {why}') from error
        except aiohttp.ClientConnectorError as error:
            address = urlsplit(url).netloc
            raise ExtenderError(f'Post "{url}": dial tcp {address}: connect: connection refused') from error
        except aiohttp.ClientError as error:
            raise ExtenderError(f'Post "{url}": EOF') from error
        except ValueError as error:
            raise ExtenderError(str(error)) from error

    def _open(self) -> aiohttp.ClientSession:
        """The connections, kept alive as the real scheduler keeps them; made on first use."""
        if self._session is None:
            trust = self.config.trust()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=trust) if trust else aiohttp.TCPConnector(),
                timeout=aiohttp.ClientTimeout(total=self.config.timeout),
                headers={"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"},
            )
        return self._session


def pod_body(pod: Obj) -> Obj:
    """A pod as kube-scheduler sends it: no kind, no apiVersion, no managed fields."""
    body = {key: value for key, value in pod.items() if key not in ("kind", "apiVersion")}
    body["metadata"] = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    return body
