"""The Docker Engine API: what the user's own `docker` command talks to."""

from beeyard.manager.api.app import serve
from beeyard.manager.api.status import ManagerStatus

__all__ = ["ManagerStatus", "serve"]
