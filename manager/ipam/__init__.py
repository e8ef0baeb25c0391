"""Docker remote IPAM plugins: processes that decide which addresses tasks get, asked once the node is known."""

from beeyard.manager.ipam.service import IpamService

__all__ = ["IpamService"]
