"""TLS as a client of servers that are not of this cluster: by their names and by an authority in a file, or the system's."""

from __future__ import annotations

import ssl

from beeyard.core.errors import HostError
from beeyard.runtime.host_lists import ClientTls


def client_context(tls: ClientTls) -> ssl.SSLContext:
    """A context.

    Raises:
        HostError: a file cannot be read, or is something else.
    """
    name = tls.ca_file
    try:
        context = ssl.create_default_context(cafile=name or None)
        if tls.certificate_file:
            name = tls.certificate_file
            context.load_cert_chain(tls.certificate_file, tls.key_file)
    except ssl.SSLError as error:
        raise HostError(
            f"{name} and what belongs to it are no certificates and key in PEM form: {error.reason}"
        ) from error
    except OSError as error:
        raise HostError(
            f"cannot read {name} or what belongs to it: {(error.strerror or str(error)).lower()}"
        ) from error
    return context


__all__ = ["client_context"]
