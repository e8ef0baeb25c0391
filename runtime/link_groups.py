"""Groups of links (IFLA_GROUP) by which links that this software made are told from all others of a host."""

# Of what is made beside a parent for tasks, such as VLAN sub-interfaces: it may be taken away again, and no other.
OWN_GROUP = 0xBEE
# Of port links: "beep".
PORT_GROUP = 0x62656570

__all__ = ["OWN_GROUP", "PORT_GROUP"]
