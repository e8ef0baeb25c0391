"""Keys of the cluster, changed and listed by queries that every member answers by itself.

Source: Serf 0.9.4 serf/keymanager.go, serf/internal_query.go (handleInstallKey, handleUseKey, handleRemoveKey,
handleListKeys).
"""

from __future__ import annotations

from beeyard.core.errors import InvalidSpec, RemoteProtocolError
from beeyard.discovery.gossip.message import KeyRequest, KeyResponse, QueryResponse
from beeyard.discovery.gossip.serf.event import Event, KeysDone
from beeyard.discovery.gossip.wire.keyring import Keyring, encode_key
from beeyard.discovery.gossip.wire.serf_codec import decode_serf, encode_serf

INSTALL, USE, REMOVE, LIST = "_serf_install-key", "_serf_use-key", "_serf_remove-key", "_serf_list-keys"
KEY_QUERIES = (INSTALL, USE, REMOVE, LIST)

# A cluster has a handful; each is 45 bytes of an answer of 1 KiB. Without a limit, a peer fills memory key by key.
N_KEYS_MAX = 64


def carry_out(keyring: Keyring | None, name: str, payload: bytes) -> tuple[KeyResponse, bool]:
    """Do what a key query asks for; what to answer, and whether the keyring has changed."""
    if keyring is None or not keyring:
        if name == LIST:
            return KeyResponse(result=False, message="Keyring is empty (encryption not enabled)"), False
        return KeyResponse(result=False, message="No keyring to modify (encryption not enabled)"), False
    before = keyring.keys
    try:
        request = decode_serf(payload)
        if not isinstance(request, KeyRequest):
            return KeyResponse(result=False, message=f"{name} carries no key request"), False
        if name == INSTALL:
            if len(before) >= N_KEYS_MAX:
                raise InvalidSpec("key", f"a keyring holds at most {N_KEYS_MAX}: remove one first")
            keyring.install(request.key)
        elif name == USE:
            keyring.use(request.key)
        elif name == REMOVE:
            keyring.remove(request.key)
        else:
            keys = tuple(encode_key(key) for key in before)
            return KeyResponse(result=True, keys=keys, primary_key=encode_key(keyring.primary)), False
    except (InvalidSpec, RemoteProtocolError) as error:
        return KeyResponse(result=False, message=str(error)), False
    return KeyResponse(result=True), keyring.keys != before


def encode_response(response: KeyResponse, limit: int) -> bytes:
    """The answer's payload; of many keys as many as fit into an answer, with a word on it."""
    n_shown = len(response.keys)
    while True:
        shown = KeyResponse(
            result=response.result,
            message=response.message
            if n_shown == len(response.keys)
            else f"Truncated key list response, showing first {n_shown} of {len(response.keys)} keys",
            keys=response.keys[:n_shown],
            primary_key=response.primary_key,
        )
        payload = encode_serf(shown)
        if len(payload) <= limit or n_shown == 0:
            return payload
        n_shown -= 1


class KeyTally:
    """Counts what members answer to a key query; complete when all alive have."""

    def __init__(self, query_id: int, n_members: int) -> None:
        self._query_id = query_id
        self._n_members = n_members
        self._n_answers = 0
        self._n_good = 0
        self._messages: dict[str, str] = {}
        self._keys: dict[str, int] = {}
        self._primary_keys: dict[str, int] = {}

    def acknowledged(self, from_node: str) -> list[Event]:
        """See `Tally.acknowledged`."""
        return []

    def answered(self, from_node: str, payload: bytes) -> list[Event]:
        """See `Tally.answered`."""
        self._n_answers += 1
        try:
            response = decode_serf(payload)
        except RemoteProtocolError as error:
            self._messages[from_node] = str(error)
            return []
        if not isinstance(response, KeyResponse):
            self._messages[from_node] = "answered something else than about keys"
            return []
        self._n_good += response.result
        if response.message or not response.result:
            self._messages[from_node] = response.message or "failed, and does not say why"
        for key in response.keys[:N_KEYS_MAX]:
            self._keys[key] = self._keys.get(key, 0) + 1
        if response.primary_key:
            self._primary_keys[response.primary_key] = self._primary_keys.get(response.primary_key, 0) + 1
        return []

    def is_complete(self) -> bool:
        """See `Tally.is_complete`."""
        return self._n_answers >= self._n_members

    def done(self, n_acks: int, n_answers: int) -> list[Event]:
        """See `Tally.done`."""
        return [
            KeysDone(
                query_id=self._query_id,
                n_members=self._n_members,
                n_answers=self._n_answers,
                n_good=self._n_good,
                messages=self._messages,
                keys=self._keys,
                primary_keys=self._primary_keys,
            )
        ]


def response_overhead(name: str) -> int:
    """Bytes that an answer takes beside its payload and what is in it, at most."""
    return len(encode_serf(QueryResponse(l_time=1 << 62, id=(1 << 32) - 1, from_node=name, flags=1))) + 8


__all__ = [
    "INSTALL",
    "KEY_QUERIES",
    "LIST",
    "REMOVE",
    "USE",
    "KeyTally",
    "carry_out",
    "encode_response",
    "response_overhead",
]
