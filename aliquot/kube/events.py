"""Events about pods, as `kubectl describe` shows them."""

from datetime import UTC, datetime


def pod_event(
    pod: tuple[str, str, str], reason: str, message: str, *, kind: str, component: str, host: str = ""
) -> dict[str, object]:
    """The body of an event.

    Args:
        pod: Namespace, name and UID.
        reason: One word for machines.
        message: A sentence for people.
        kind: `Normal` or `Warning`.
        component: Who says so.
        host: The node it says so on, where it has one.
    """
    namespace, name, uid = pod
    now = datetime.now(UTC)
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": f"{name}.{int(now.timestamp() * 1e6):x}"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": component, **({"host": host} if host else {})},
        "count": 1,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
    }
