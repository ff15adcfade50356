"""Where tests keep what they download or build once: $ALIQUOT_CACHE, else aliquot in the user's cache directory."""

import os
from pathlib import Path


def cache_dir(name: str) -> Path:
    """Returns a directory of that name in the cache, made if need be."""
    root = os.environ.get("ALIQUOT_CACHE") or (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aliquot"
    )
    path = Path(root) / name
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()
