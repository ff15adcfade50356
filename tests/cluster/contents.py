"""What a cluster has, of all kinds."""

from collections.abc import Iterator

from aliquot.sandbox.cluster.kubectl import Kubectl


def collections(kubectl: Kubectl) -> Iterator[str]:
    """The path of every kind of object that can be listed, but for events, which end by themselves."""
    groups = kubectl.request("GET", "/apis")["groups"]
    for version in ("/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)):
        for resource in kubectl.request("GET", version)["resources"]:
            if "list" in resource["verbs"] and resource["name"] != "events":
                yield f"{version}/{resource['name']}"


def contents(kubectl: Kubectl) -> dict[str, tuple[str, int]]:
    """Every object, by path and name: its UID, and how often what is wished of it was changed."""
    found = dict[str, tuple[str, int]]()
    for path in collections(kubectl):
        for item in kubectl.request("GET", path)["items"]:
            metadata = item["metadata"]
            name = f"{path}: {metadata.get('namespace', '')}/{metadata['name']}"
            found[name] = metadata.get("uid", ""), metadata.get("generation", 0)
    return found
