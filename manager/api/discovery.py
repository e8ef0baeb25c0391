"""`/beeyard/v1/discovery`: the nodes that all managers have published at the discovery URL, and how that goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import trio
from starlette.routing import Route

from beeyard.core.errors import FailedPrecondition
from beeyard.manager.api.call import Call, Reply, route
from beeyard.manager.api.context import Context
from beeyard.manager.published import OTHERS, PublishedLists

PATH = "/beeyard/v1/discovery"


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""
    return [
        route("GET", PATH, discovery, context),
        route("POST", f"{PATH}/token", token_create, context),
    ]


async def discovery(context: Context, call: Call) -> Reply:
    published = context.status.published
    if published is None:
        raise FailedPrecondition("this manager has no discovery URL: give it one, beeyard manage URL")
    return Reply(shown(published))


async def token_create(context: Context, call: Call) -> Reply:
    """A new token of this manager's token service. Only where the API is served to people who may do all else too."""
    tokens = context.status.tokens
    if tokens is None:
        raise FailedPrecondition("this manager serves no tokens: set token_listen, such as 0.0.0.0:3380")
    certificate = context.cluster.ca_certificate_pem.decode()
    return Reply({"Url": tokens.new_url(), "CaCertificate": certificate}, 201)


def shown(published: PublishedLists) -> dict[str, Any]:
    """What a person is told."""
    union, publisher = published.union, published.publisher
    return {
        "Url": published.url.shown,
        "Nodes": list(union.entries()),
        "Lists": [
            {"Owner": owner, "Nodes": list(entries), "Missed": owner in union.missed}
            for owner, entries in sorted(union.lists.items())
        ],
        "Known": union.is_known,
        "Error": union.error,
        "Published": {
            "Owner": publisher.owner,
            "Nodes": list(publisher.published or ()),
            "Error": publisher.error,
        }
        if publisher is not None
        else None,
    }


def metric_lines(published: PublishedLists) -> Iterator[str]:
    """The same for Prometheus."""
    union, publisher = published.union, published.publisher
    n_managers = sum(owner != OTHERS for owner in union.lists)
    age_s = trio.current_time() - union.seen_at_s if union.seen_at_s is not None else -1.0
    figures: list[tuple[str, str, str, float]] = [
        ("nodes", "gauge", "Nodes that are published at the discovery URL", len(union.entries())),
        ("lists", "gauge", "Managers whose lists are published there", n_managers),
        ("missed_lists", "gauge", "Lists that are kept although the server lost them", len(union.missed)),
        ("readable", "gauge", "Whether what is published can be read now", int(union.is_known and not union.error)),
        ("seen_age_seconds", "gauge", "Time since it was read last, -1: never", round(age_s, 3)),
        ("read_errors_total", "counter", "Times that reading failed", union.n_errors),
    ]
    if publisher is not None:
        n_own = len(publisher.published or ())
        good = publisher.published is not None and not publisher.error
        figures += [
            ("own_nodes", "gauge", "Nodes in this manager's own list", n_own),
            ("published", "gauge", "Whether this manager's list is published as it should be", int(good)),
            ("writes_total", "counter", "Times that the own list was written", publisher.n_writes),
            ("leases_total", "counter", "Leases that were taken for it", publisher.n_leases),
            ("publish_errors_total", "counter", "Times that publishing failed", publisher.n_errors),
        ]
    for name, kind, what, value in figures:
        metric = f"beeyard_discovery_{name}"
        yield f"# HELP {metric} {what}."
        yield f"# TYPE {metric} {kind}"
        yield f"{metric} {value:g}"


__all__ = ["PATH", "metric_lines", "routes", "shown"]
