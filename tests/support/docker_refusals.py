"""Options of `docker service create` that do not work, and what is said of each."""

from __future__ import annotations

REFUSED = [
    ("-p 80:80", "--publish (-p) in mode ingress is not supported by beeyard: say mode=host"),
    ("--mode global", "--mode global is not supported"),
    ("--mode replicated-job", "--mode replicated-job is not supported"),
    ("--mount type=bind,source=/tmp,target=/t", "--mount type=bind is not supported"),
    ("--secret s", "docker secrets are not supported"),
    ("--config c", "docker configs are not supported"),
    ("--health-cmd true", "--health-cmd"),
    ("--init", "--init is not supported"),
    ("--tty", "--tty is not supported"),
    ("--read-only", "--read-only is not supported"),
    ("--dns 1.1.1.1", "--dns"),
    ("--host a:1.2.3.4", "--host is not supported"),
    ("--group wheel", "--group is not supported"),
    ("--cap-add NET_ADMIN", "--cap-add is not supported"),
    ("--cap-drop ALL", "--cap-drop is not supported"),
    ("--sysctl net.core.somaxconn=1", "--sysctl is not supported"),
    ("--ulimit nofile=1:2", "--ulimit is not supported"),
    ("--isolation process", "--isolation is not supported"),
    ("--log-driver local --log-opt max-size=1m", "--log-opt is not supported"),
    (
        "--placement-pref spread=node.hostname",
        "(--placement-pref): 'node.hostname': tasks are spread over node.labels.NAME",
    ),
    ("--label beeyard.strategy=binpack", "'binpack' is none of spread, pack, shape, fgd"),
    ("--endpoint-mode dnsrr", "--endpoint-mode dnsrr is not supported"),
    ("--update-failure-action rollback", "--update-failure-action rollback is not supported"),
    ("--rollback-parallelism 3", "--rollback option is not supported"),
    ("--network name=host,alias=x", "alias= is not supported"),
    ("--network lan-r1", "network lan-r1 not found"),
    ("--constraint node.role=manager", "expected one operator from ==, !="),
    ("--limit-memory 1k", "must be at least 4 MiB"),
    ("--env A={{.Task.Slot}}", "in --env is not supported"),
    ("--user 4294967295", "(--user): 4294967295 is not an id"),
    ("--label beeyard.on-isolation=fense", "'fense' is not fence"),
    ("--label beeyard.addresses=10.1.0.10", "it needs --label beeyard.on-isolation=fence too"),
]

__all__ = ["REFUSED"]
