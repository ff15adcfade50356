"""Annotations that refine what a pod asks for: for all its containers, or for one.

`aliquot.dev/core-limit` speaks for every container, `main.aliquot.dev/core-limit` for the container `main`, and wins
there. Container names are DNS labels, so the second is as good a key as the first.
"""

from collections.abc import Collection, Mapping


def written_for(annotations: Mapping[str, str], annotation: str, container: str) -> tuple[str, str] | None:
    """The key and value that count for a container; None where nothing is said."""
    for key in (f"{container}.{annotation}", annotation):
        if key in annotations:
            return key, annotations[key]
    return None


def names_nobody(
    annotations: Mapping[str, str], annotation: str, containers: Collection[str]
) -> tuple[str, str] | None:
    """A key of this annotation and the container in it that is none of these; None where there is none."""
    ending = f".{annotation}"
    for key in annotations:
        name = key.removesuffix(ending)
        if key.endswith(ending) and name not in containers:
            return key, name
    return None
