"""Asking a manager of this host through its unix socket: HTTP and JSON, with what the standard library has."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from typing import Any

SOCKET = "/run/beeyard/docker.sock"


class ApiError(Exception):
    """The manager cannot be asked, or said no; the text is for the person who asked."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def default_socket() -> str:
    """Where the docker command of this shell would ask, if that is a unix socket."""
    address = os.environ.get("DOCKER_HOST", "")
    return address.removeprefix("unix://") if address.startswith("unix://") else SOCKET


def call(path: str, method: str, target: str, body: object = None) -> Any:
    """One request; gives the decoded answer.

    Raises:
        ApiError
    """
    connection = _UnixConnection(path)
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, target, data, {"Content-Type": "application/json"} if data else {})
        response = connection.getresponse()
        text = response.read()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ApiError(
            f"cannot ask the manager at {path}: {reason}; it runs on this host, or --socket names it"
        ) from error
    finally:
        connection.close()
    answer = json.loads(text) if text.strip() else None
    if response.status >= 400:
        raise ApiError(
            answer["message"] if isinstance(answer, dict) and "message" in answer else f"HTTP {response.status}"
        )
    return answer


def told(command: str, error: Exception) -> int:
    """Tell a person why a command failed; its exit code."""
    print(f"beeyard {command}: {error}", file=sys.stderr)
    return 1


__all__ = ["SOCKET", "ApiError", "call", "default_socket", "told"]
