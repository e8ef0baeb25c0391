"""`/beeyard/client-certificates`: who may use the API from elsewhere. Answered on the unix socket alone."""

from __future__ import annotations

from starlette.routing import Route

from beeyard.core.errors import Forbidden, InvalidSpec
from beeyard.manager.api.call import Call, Reply, require_object, route
from beeyard.manager.api.context import Context
from beeyard.manager.api.docker_value import time_of
from beeyard.manager.client_certificates import ClientCertificates

PATH = "/beeyard/client-certificates"
VALID_DAYS = 90.0


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""
    return [
        route("GET", PATH, certificate_list, context),
        route("POST", PATH, certificate_issue, context),
        route("DELETE", PATH + "/{name}", certificate_revoke, context),
    ]


def _require_local(call: Call) -> None:
    """Whoever holds a client certificate must not be able to make another, or to shut out its owner."""
    if call.is_remote:
        raise Forbidden("client certificates are issued and revoked on the manager's own host alone")


async def certificate_list(context: Context, call: Call) -> Reply:
    _require_local(call)
    return Reply(
        [
            {
                "Name": certificate.name,
                "Serial": certificate.serial,
                "CreatedAt": time_of(certificate.created_at_s),
                "NotAfter": time_of(certificate.not_after_s),
            }
            for certificate in ClientCertificates(context.host, context.store).valid()
        ]
    )


async def certificate_issue(context: Context, call: Call) -> Reply:
    _require_local(call)
    body = require_object(call.json())
    name, request, valid_s = body.get("Name"), body.get("Request"), body.get("ValidSeconds", VALID_DAYS * 86400)
    if not isinstance(name, str) or not isinstance(request, str):
        raise InvalidSpec("body", "Name and Request must be texts, the latter a certificate request in PEM")
    if isinstance(valid_s, bool) or not isinstance(valid_s, int | float):
        raise InvalidSpec("ValidSeconds", "it must be a number")
    clients = ClientCertificates(context.host, context.store)
    certificate_pem = await clients.issue(name, request.encode("utf-8", "replace"), float(valid_s))
    return Reply(
        {"Certificate": certificate_pem.decode("ascii"), "CA": clients.ca_certificate_pem.decode("ascii")}, 201
    )


async def certificate_revoke(context: Context, call: Call) -> Reply:
    _require_local(call)
    return Reply({"Revoked": await ClientCertificates(context.host, context.store).revoke(call.path("name"))})


__all__ = ["PATH", "routes"]
