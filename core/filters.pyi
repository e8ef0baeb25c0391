import numpy as np
from numpy.typing import NDArray

from beeyard.core.branches import Branches
from beeyard.core.node_table import Needs, NodeTable

POOL_NETWORKS_MAX: int
VERDICT_NOT_READY: int
VERDICT_RESOURCES: int
VERDICT_HOST_PORT: int
VERDICT_MAX_REPLICAS: int
VERDICT_REFUSED: int
VERDICT_POOL: int
VERDICT_LINK: int
VERDICT_STATIC: int
VERDICT_ABSENT: int

class Ask:
    n_networks: int
    def __init__(
        self,
        table: NodeTable,
        needs: Needs,
        max_replicas: int,
        one_per_node: bool,
        static_code: NDArray[np.uint8],
        ports_taken: NDArray[np.uint8],
        refused: NDArray[np.uint8],
        service_tasks: NDArray[np.int32],
        pools: NDArray[np.int32],
        network_begin: NDArray[np.int32],
        pool_free: NDArray[np.int64],
        scratch: NDArray[np.int32],
        link_parent: NDArray[np.int32] | None = None,
        link_kind: NDArray[np.int32] | None = None,
        use_kind: NDArray[np.int32] | None = None,
        use_count: NDArray[np.int32] | None = None,
        *,
        passing: NDArray[np.uint64] | None = None,
        penalty: NDArray[np.int32] | None = None,
        n_occupied: int = 0,
        alone: bool = False,
        only: int = -1,
        any_refused: bool = True,
        branches: Branches | None = None,
    ) -> None: ...

def check_row(table: NodeTable, ask: Ask, row: int) -> int: ...
def check_all(table: NodeTable, ask: Ask, verdicts: NDArray[np.uint8]) -> int: ...
def check_sets(table: NodeTable, ask: Ask, failing: NDArray[np.uint32]) -> None: ...
