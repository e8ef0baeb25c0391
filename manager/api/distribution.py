"""`/distribution`: what the docker command asks before it creates a service, to pin an image to its digest.

Beeyard talks to no registry. It answers for the image of the embedded executor, so that the command gives no warning.
"""

from __future__ import annotations

from starlette.routing import Route

from beeyard.manager.api.call import Call, Reply, error_reply, route
from beeyard.manager.api.context import Context
from beeyard.manager.control.image import HOST_DIGEST, HOST_IMAGE, canonical_image


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""
    return [route("GET", "/distribution/{name:path}/json", distribution_inspect, context)]


async def distribution_inspect(_context: Context, call: Call) -> Reply:
    name = call.path("name")
    if canonical_image(name) != HOST_IMAGE:
        return error_reply(404, f"no such image: {name}: beeyard asks no registry")
    descriptor = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": HOST_DIGEST, "size": 0}
    # No platforms: the image is each node's own, so it says nothing about where a task may go.
    return Reply({"Descriptor": descriptor, "Platforms": []})


__all__ = ["routes"]
