"""The API server's HTTP side: authentication, paths, parameters, and which verb a request means."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml
from aiohttp import web

from aliquot.sandbox.cluster.apiserver import errors
from aliquot.sandbox.cluster.apiserver.accounts import Accounts, User
from aliquot.sandbox.cluster.apiserver.discovery import discover
from aliquot.sandbox.cluster.apiserver.errors import StatusError
from aliquot.sandbox.cluster.apiserver.patch import APPLY_PATCH
from aliquot.sandbox.cluster.apiserver.proxy import is_proxied, pass_on
from aliquot.sandbox.cluster.apiserver.rbac import Ask, Authorizer
from aliquot.sandbox.cluster.apiserver.rest import Outcome, Rest, Target
from aliquot.sandbox.cluster.apiserver.selectors import parse_selector
from aliquot.sandbox.cluster.apiserver.watch import Watch, WatchOptions
from aliquot.sandbox.cluster.logs import LOG_DIRECTORY_ANNOTATION, log_path
from aliquot.sandbox.cluster.objects import dig, uid_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aliquot.sandbox.cluster.apiserver.resources import Registry
    from aliquot.sandbox.cluster.apiserver.selectors import Selector
    from aliquot.sandbox.cluster.apiserver.store import Store
    from aliquot.sandbox.cluster.objects import Obj

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OPEN_PATHS = ("/healthz", "/livez", "/readyz")
LONGEST_WATCH_S = 1800
LARGEST_BODY = 3 * 1024 * 1024
FIELD_MANAGER_MISSING = "fieldManager: Required value: is required for apply patch"
REVIEWS = {
    ("authentication.k8s.io", "v1", "tokenreviews"),
    ("authorization.k8s.io", "v1", "subjectaccessreviews"),
}
_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


class Server:
    """Routes requests to discovery, watches and the REST verbs."""

    def __init__(
        self, store: Store, registry: Registry, rest: Rest, token: str, bookmark_period: float = 10.0
    ) -> None:
        self._store = store
        self._registry = registry
        self._rest = rest
        self._accounts = Accounts(store, token)
        self._authorizer = Authorizer(store)
        self._period = bookmark_period
        self._watches: set[asyncio.Task[Any]] = set()

    def application(self) -> web.Application:
        """The aiohttp application to serve."""
        app = web.Application(client_max_size=LARGEST_BODY, middlewares=[self._guard])
        app.router.add_route("*", "/{path:.*}", self._dispatch)
        app.on_shutdown.append(self._end_watches)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Authenticate, and answer with what an error says."""
        try:
            if request.path in OPEN_PATHS:
                return web.Response(text="ok")
            self._authorize(request, self._authenticate(request))
            return await handler(request)
        except StatusError as error:
            return _reply(error.body, error.code)
        except errors.UnservedPathError as error:
            return web.Response(text=error.TEXT, status=404)
        except web.HTTPRequestEntityTooLarge:
            return _reply(StatusError(413, "RequestEntityTooLarge", "request body too large").body, 413)

    def _authenticate(self, request: web.Request) -> User:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        known = self._accounts.user_of(token) if scheme == "Bearer" and token else None
        if known is None:
            raise errors.unauthorized()
        return known[0]

    def _authorize(self, request: web.Request, user: User) -> None:
        """The admin may do everything, a service account what RBAC lets it."""
        ask = self._ask(request)
        if not self._authorizer.allows(user, ask):
            raise errors.forbidden(user.username, ask)

    def _ask(self, request: web.Request) -> Ask:
        """What a request wants, in RBAC's words."""
        path = request.path.strip("/").split("/")
        if is_proxied(path):
            verb = _VERBS.get(request.method, "")
            return Ask(verb, "services/proxy", "", path[3], path[5])
        if _is_review(path):
            return Ask("create", path[3], path[1])
        target = self._target(path)
        if target is None:
            return Ask(request.method.lower(), path=request.path)
        resource = target.resource.plural
        resource += f"/{target.subresource}" if target.subresource else ""
        verb = _VERBS.get(request.method, "")
        if verb in ("get", "delete") and not target.name:
            verb = {"get": "list", "delete": "deletecollection"}[verb]
        if verb in ("get", "list") and request.query.get("watch") in ("true", "1"):
            verb = "watch"
        return Ask(verb, resource, target.resource.group, target.namespace, target.name)

    async def _review(self, request: web.Request, kind: str) -> web.Response:
        """A question that is answered and not stored."""
        if request.method != "POST":
            raise errors.method_not_allowed()
        asked = await _body(request)
        if kind == "tokenreviews":
            return _reply(self._accounts.review(asked), 201)
        spec = asked.get("spec") or {}
        groups = tuple(spec.get("groups") or ())
        user = User(spec.get("user", ""), spec.get("uid", ""), groups, spec.get("extra") or {})
        return _reply(self._authorizer.review(asked, user), 201)

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        path = request.path.strip("/").split("/")
        if is_proxied(path):
            return await pass_on(self._store, request, path)
        if _is_review(path):
            return await self._review(request, path[3])
        target = self._target(path)
        return _reply(discover(self._registry, path)) if target is None else await self._at(request, target)

    async def _at(self, request: web.Request, target: Target) -> web.StreamResponse:
        if (target.resource.key, target.subresource) == ("serviceaccounts", "token"):
            return await self._token(request, target)
        if target.subresource in ("binding", "eviction", "log"):
            return await self._pod_subresource(request, target)
        if target.name:
            return await self._one(request, target)
        return await self._many(request, target)

    def _target(self, path: list[str]) -> Target | None:
        """What a path means; None for discovery."""
        if path[0] == "api" and len(path) > 2:  # noqa: PLR2004
            group, version, rest = "", path[1], path[2:]
        elif path[0] == "apis" and len(path) > 3:  # noqa: PLR2004
            group, version, rest = path[1], path[2], path[3:]
        else:
            return None
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):  # noqa: PLR2004
            namespace, rest = rest[1], rest[2:]
        resource = self._registry.find(group, version, rest[0])
        name, subresource, *more = [*rest[1:], "", ""]
        known = (
            "",
            *(["status"] if resource.status else []),
            *(["binding", "eviction", "log"] if rest[0] == "pods" else []),
            *(["token"] if rest[0] == "serviceaccounts" else []),
        )
        if any(more) or subresource not in known or (namespace and not resource.namespaced):
            raise errors.path_not_found()
        return Target(resource, namespace, name, subresource)

    async def _token(self, request: web.Request, target: Target) -> web.Response:
        if request.method != "POST":
            raise errors.method_not_allowed()
        asked = await _body(request)
        return _reply(self._accounts.request_token(target.namespace, target.name, asked), 201)

    async def _one(self, request: web.Request, target: Target) -> web.StreamResponse:
        match request.method:
            case "GET" if request.query.get("watch") in ("true", "1"):
                return await self._watch(request, target)
            case "GET":
                return _reply(self._rest.get(target))
            case "PUT":
                return _written(await self._rest.replace(target, await _body(request)))
            case "PATCH":
                patch = await _body(request)
                if request.content_type == APPLY_PATCH and not request.query.get("fieldManager"):
                    raise errors.invalid("PatchOptions.meta.k8s.io", "", [FIELD_MANAGER_MISSING])
                return _written(await self._rest.patch(target, request.content_type, patch))
            case "DELETE":
                return _reply(await self._rest.delete(target, await _delete_options(request)))
        raise errors.method_not_allowed()

    async def _many(self, request: web.Request, target: Target) -> web.StreamResponse:
        match request.method:
            case "GET" if request.query.get("watch") in ("true", "1"):
                return await self._watch(request, target)
            case "GET":
                return _reply(self._list(request, target))
            case "POST":
                dry_run = bool(request.query.get("dryRun"))
                return _written(await self._rest.create(target, await _body(request), dry_run=dry_run))
            case "DELETE":
                return await self._delete_all(request, target)
        raise errors.method_not_allowed()

    def _list(self, request: web.Request, target: Target) -> Obj:
        selector = _selector(request, target)
        resource = target.resource
        found = self._store.list(resource.key, target.namespace)
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": {"resourceVersion": str(self._store.version)},
            "items": [obj for obj in found if selector.matches(obj)],
        }

    async def _delete_all(self, request: web.Request, target: Target) -> web.Response:
        options = await _delete_options(request)
        listed = self._list(request, target)
        for obj in listed["items"]:
            namespace = obj["metadata"].get("namespace", "")
            await self._rest.delete(Target(target.resource, namespace, obj["metadata"]["name"]), options)
        return _reply(listed)

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        query = request.query
        options = WatchOptions(
            version=_number(query.get("resourceVersion")),
            namespace=target.namespace,
            name=target.name,
            selector=_selector(request, target),
            timeout=_number(query.get("timeoutSeconds")) or LONGEST_WATCH_S,
            bookmarks=query.get("allowWatchBookmarks") in ("true", "1"),
            initial_events=query.get("sendInitialEvents") in ("true", "1"),
        )
        watch = Watch(self._store, target.resource, options, self._period)
        task = asyncio.current_task()
        if task is not None:
            self._watches.add(task)
            task.add_done_callback(self._watches.discard)
        return await watch.serve(request)

    async def _end_watches(self, _: web.Application) -> None:
        for task in list(self._watches):
            task.cancel()

    async def _pod_subresource(self, request: web.Request, target: Target) -> web.Response:
        if (target.subresource, request.method) == ("binding", "POST"):
            self._rest.bind(target, await _body(request))
            return _reply(
                {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201
            )
        if (target.subresource, request.method) == ("eviction", "POST"):
            await self._rest.evict(target, await _body(request))
            return _reply(
                {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201
            )
        if (target.subresource, request.method) == ("log", "GET"):
            return self._log(request, target)
        raise errors.method_not_allowed()

    def _log(self, request: web.Request, target: Target) -> web.Response:
        """The kubelet writes logs to files and says where on its Node; they outlive it."""
        pod = self._rest.get(target)
        spec = pod["spec"]
        names = [c["name"] for f in ("initContainers", "containers") for c in spec.get(f) or ()]
        name = request.query.get("container") or spec["containers"][0]["name"]
        if name not in names:
            raise errors.bad_request(f"container {name} is not valid for pod {target.name}")
        node = self._store.get("nodes", "", spec.get("nodeName", "")) or {}
        directory = dig(node, "metadata.annotations") or {}
        previous = request.query.get("previous") in ("true", "1")
        path = log_path(
            Path(directory.get(LOG_DIRECTORY_ANNOTATION, "")), uid_of(pod), name, previous=previous
        )
        if not path.is_file():
            raise errors.bad_request(
                f'container "{name}" in pod "{target.name}" is waiting to start: ContainerCreating'
            )
        text = path.read_bytes()
        if (tail := _number(request.query.get("tailLines"))) is not None:
            text = b"".join(text.splitlines(keepends=True)[-tail:]) if tail else b""
        return web.Response(body=text, content_type="text/plain")


def _is_review(path: list[str]) -> bool:
    return path[0] == "apis" and tuple(path[1:]) in REVIEWS


def _reply(obj: Obj, code: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(obj), status=code, content_type="application/json")


def _written(outcome: Outcome) -> web.Response:
    response = _reply(outcome.object, 201 if outcome.created else 200)
    for warning in outcome.warnings:
        response.headers.add("Warning", f"299 - {json.dumps(warning)}")
    return response


async def _body(request: web.Request) -> Any:
    """The body as JSON or YAML; StatusError 400 when it is neither, or no object where one must be."""
    raw = await request.read()
    try:
        parsed = yaml.safe_load(raw) if "yaml" in request.content_type else msgspec.json.decode(raw)
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise errors.bad_request(f"the object provided is unrecognized: {error}") from error
    wanted: tuple[type, ...] = (dict, list) if request.method == "PATCH" else (dict,)
    metadata = parsed.get("metadata") if isinstance(parsed, dict) else None
    if not isinstance(parsed, wanted) or not isinstance(metadata, dict | None):
        raise errors.bad_request("the object provided is unrecognized: not a Kubernetes object")
    return parsed


async def _delete_options(request: web.Request) -> Obj:
    """DeleteOptions of the body, or of the query."""
    options: Obj = await _body(request) if request.can_read_body else {}
    if (grace := _number(request.query.get("gracePeriodSeconds"))) is not None:
        options = {**options, "gracePeriodSeconds": grace}
    return options


def _selector(request: web.Request, target: Target) -> Selector:
    query = request.query
    return parse_selector(target.resource.key, query.get("labelSelector", ""), query.get("fieldSelector", ""))


def _number(text: str | None) -> int | None:
    if text in (None, ""):
        return None
    try:
        return int(text or "")
    except ValueError:
        raise errors.bad_request(f"invalid number: {text!r}") from None
