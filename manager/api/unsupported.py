"""What Docker's API has and Beeyard has not, by path: each answers 501 with a sentence that names it."""

from __future__ import annotations

from beeyard.core.errors import Unsupported

_SERVICES = "Beeyard runs services: see docker service"
# First segment of the path → (what a user calls it, what to do instead).
FEATURES = {
    "containers": ("docker containers", _SERVICES),
    "exec": ("docker exec", ""),
    "images": ("docker images", "tasks run programs of their node, image host"),
    "build": ("docker build", ""),
    "session": ("docker build", ""),
    "grpc": ("docker build", ""),
    "commit": ("docker commit", ""),
    "auth": ("docker login", "Beeyard asks no registry"),
    "secrets": ("docker secrets", ""),
    "configs": ("docker configs", ""),
    "plugins": ("docker plugins", ""),
    "events": ("docker events", ""),
    "system": ("docker system df", ""),
}


def feature_of(path: str) -> Unsupported | None:
    """The refusal for a path that no route serves; None when Docker does not know it either."""
    feature = FEATURES.get(path.split("/", 2)[1] if path.startswith("/") else "")
    return Unsupported(*feature) if feature else None


__all__ = ["feature_of"]
