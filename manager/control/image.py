"""Image names. The one image of the embedded executor is `host`; Docker's CLI writes it "host:latest" or with a digest."""

from __future__ import annotations

HOST_IMAGE = "host"
# SHA-256 of the word "host": the image never changes, so its digest does not either.
HOST_DIGEST = "sha256:4740ae6347b0172c01254ff55bae5aff5199f4446e7f6d643d40185b3f475145"


def canonical_image(reference: str) -> str:
    """The name that is stored and that executors compare: without ":latest" and Docker Hub's prefix.

    A digest beside a tag is dropped for `host` alone, where it says nothing.
    """
    name = reference
    for prefix in ("docker.io/library/", "index.docker.io/library/", "docker.io/"):
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    without_digest, at, digest = name.partition("@")
    plain = without_digest.removesuffix(":latest")
    if plain == HOST_IMAGE:
        return HOST_IMAGE
    return f"{without_digest}@{digest}" if at else plain


def docker_image(image: str) -> str:
    """A stored name as Docker shows it: with a tag."""
    tagged = "@" in image or ":" in image.rpartition("/")[2]
    return image if tagged or not image else f"{image}:latest"


__all__ = ["HOST_DIGEST", "HOST_IMAGE", "canonical_image", "docker_image"]
