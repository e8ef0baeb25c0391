"""The API over TLS for clients on other machines: the same application behind a look at who asks."""

from __future__ import annotations

import structlog
import trio

from beeyard.core.states import Role
from beeyard.manager.api.app import App
from beeyard.manager.api.call import error_reply
from beeyard.manager.api.context import Context
from beeyard.manager.api.http_server import HttpServer, Receive, Scope, Send
from beeyard.manager.api.status import ManagerStatus
from beeyard.manager.client_certificates import ClientCertificates, ServerIdentity
from beeyard.manager.config import ManagerConfig
from beeyard.manager.store import Store
from beeyard.runtime.host import Host, PeerCertificate

log = structlog.get_logger(__name__)


class ForClients:
    """The application for those alone who show a client certificate that is valid now: each request is looked at, so that
    revoking one also ends what a connection that stands may do."""

    def __init__(self, app: App, clients: ClientCertificates) -> None:
        self._app = app
        self._clients = clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope["extensions"]["beeyard.peer"]
        reason = self._refusal(peer["certificate"])
        if not reason:
            await self._app(scope, receive, send)
            return
        log.warning(
            "refused a request", method=scope["method"], path=scope["path"], remote=peer["remote"], reason=reason
        )
        reply = error_reply(403, reason)
        headers = [(b"content-type", reply.content_type.encode()), (b"content-length", str(len(reply.body)).encode())]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    def _refusal(self, certificate: PeerCertificate | None) -> str:
        if certificate is None:
            return "a client certificate of this cluster is needed: see beeyard client-certificate"
        if certificate.role is not Role.CLIENT:
            return f"the certificate is one of a {certificate.role}, not of a client"
        if not self._clients.is_valid(certificate.serial):
            return f"the certificate of client {certificate.node_id} was revoked"
        return ""


async def serve_remote(
    host: Host,
    store: Store,
    status: ManagerStatus,
    config: ManagerConfig,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on `config.api_listen` until cancelled; started with the address.

    Raises:
        HostError: the address cannot be bound.
    """
    identity = ServerIdentity(host, store, config)
    app = ForClients(App(Context(host, store, status)), ClientCertificates(host, store))
    listener = await host.net.listen(config.api_listen, identity.credentials)
    await HttpServer(app).serve(listener, task_status)


__all__ = ["ForClients", "serve_remote"]
