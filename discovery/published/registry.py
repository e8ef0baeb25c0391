"""What a token service knows: lists by token and owner, each for as long as its writer said. Callers say when it is.

It is kept in memory alone. After a restart of the service all lists are written again within a third of their time; until
then it knows less than there is and says so, except of tokens that it has made since.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import math
import random
import re
from collections.abc import Sequence

from beeyard.core.errors import InvalidSpec, NotFound
from beeyard.discovery.published.backend import OTHERS, Contents
from beeyard.discovery.published.entries import ENTRIES_MAX, checked_entry

# 64 bits that tell tokens apart, and 64 by which the service knows its own again: nobody guesses one over a network.
_HALF = 16
_TOKEN = re.compile(rf"[0-9a-f]{{{2 * _HALF}}}")
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
# A thousand clusters of one manager, or a few large ones.
OWNERS_MAX = 1000
TTL_S_MIN, TTL_S_MAX = 1.0, 86400.0


@dataclasses.dataclass
class _Token:
    version: int
    # By owner; entries that came one by one, as from classic Swarm, each as an owner of its own.
    lists: dict[str, tuple[float, tuple[str, ...]]] = dataclasses.field(default_factory=dict)
    single: dict[str, float] = dataclasses.field(default_factory=dict)


class Registry:
    """See the module.

    Args:
        key: a secret of this cluster, from which tokens are made.
        epoch: larger at each start of the service, so that nobody takes an old version for a new one.
        complete_at_s: until then writers may still have to come back.
    """

    def __init__(self, key: bytes, rng: random.Random, *, epoch: int, complete_at_s: float) -> None:
        self._key = key
        self._rng = rng
        self._epoch = epoch
        self._complete_at_s = complete_at_s
        self._made: dict[str, None] = {}
        self._tokens: dict[str, _Token] = {}

    def new_token(self) -> str:
        """A token for one larger cluster. It costs nothing and never ends."""
        number = f"{self._rng.getrandbits(4 * _HALF):0{_HALF}x}"
        token = number + self._seal(number)
        self._made[token] = None
        if len(self._made) > OWNERS_MAX:
            del self._made[next(iter(self._made))]
        return token

    def is_complete(self, now_s: float, token: str) -> bool:
        """Whether the lists of a token are all that there is."""
        return token in self._made or now_s >= self._complete_at_s

    def put(self, now_s: float, token: str, owner: str, entries: Sequence[str], ttl_s: float) -> None:
        """Have a list count for a time.

        Raises:
            NotFound: this service has not made the token.
            InvalidSpec
        """
        known = self._known(now_s, token)
        if not _OWNER.fullmatch(owner):
            raise InvalidSpec("owner", f"{owner!r} must be 1 to 128 letters, digits, '_', '.' or '-'")
        _check_ttl(ttl_s)
        if len(entries) > ENTRIES_MAX:
            raise InvalidSpec("list", f"it has more than {ENTRIES_MAX} entries")
        checked = tuple(sorted({checked_entry(entry) for entry in entries}))
        self._check_room(owner not in known.lists)
        before = known.lists.get(owner)
        known.lists[owner] = (now_s + ttl_s, checked)
        if before is None or before[1] != checked:
            known.version += 1

    def add(self, now_s: float, token: str, entry: str, ttl_s: float) -> None:
        """Have one entry count for a time; raises as `put`."""
        known = self._known(now_s, token)
        _check_ttl(ttl_s)
        entry = checked_entry(entry)
        self._check_room(entry not in known.single)
        known.version += entry not in known.single
        known.single[entry] = now_s + ttl_s

    def remove(self, now_s: float, token: str, owner: str) -> None:
        """Take a list away; one that is not there is fine. Raises NotFound: this service has not made the token."""
        known = self._known(now_s, token)
        known.version += known.lists.pop(owner, None) is not None

    def lists(self, now_s: float, token: str) -> tuple[int, Contents]:
        """A version, which grows with each change, and what counts now. Raises NotFound."""
        known = self._known(now_s, token)
        contents = {owner: entries for owner, (_, entries) in sorted(known.lists.items())}
        single = tuple(sorted(known.single))
        return known.version, contents | ({OTHERS: single} if single else {})

    def next_end(self, token: str) -> float:
        """When the next list of a token ends if nobody renews it."""
        known = self._tokens.get(token)
        if known is None:
            return math.inf
        return min([*(until_s for until_s, _ in known.lists.values()), *known.single.values()], default=math.inf)

    def _known(self, now_s: float, token: str) -> _Token:
        number, seal = token[:_HALF], token[_HALF:]
        if not _TOKEN.fullmatch(token) or not hmac.compare_digest(seal, self._seal(number)):
            raise NotFound("token", token[:40])
        known = self._tokens.setdefault(token, _Token(self._epoch))
        lists = {owner: held for owner, held in known.lists.items() if held[0] > now_s}
        single = {entry: until_s for entry, until_s in known.single.items() if until_s > now_s}
        known.version += (len(lists), len(single)) != (len(known.lists), len(known.single))
        known.lists, known.single = lists, single
        return known

    def _check_room(self, is_new: bool) -> None:
        n_owners = sum(len(known.lists) + len(known.single) for known in self._tokens.values()) if is_new else 0
        if n_owners >= OWNERS_MAX:
            raise InvalidSpec("list", f"this service has {OWNERS_MAX} lists already")

    def _seal(self, number: str) -> str:
        return hashlib.blake2b(
            number.encode(), key=self._key, digest_size=_HALF // 2, person=b"beeyard-token"
        ).hexdigest()


def _check_ttl(ttl_s: float) -> None:
    if not TTL_S_MIN <= ttl_s <= TTL_S_MAX:
        raise InvalidSpec("ttl", f"{ttl_s:g} must be from {TTL_S_MIN:g} to {TTL_S_MAX:g} seconds")


__all__ = ["OWNERS_MAX", "Registry"]
