import numpy as np
from numpy.typing import NDArray

from beeyard.core.filters import Ask
from beeyard.core.node_table import NodeTable

def spread(table: NodeTable, ask: Ask, rows: NDArray[np.int32], pools: NDArray[np.int32]) -> int: ...
def spread_each(
    table: NodeTable,
    asks: list[Ask],
    ask_of: NDArray[np.int32],
    amounts: NDArray[np.int64] | None,
    rows: NDArray[np.int32],
    pools: NDArray[np.int32],
) -> int: ...
def give_back_each(
    table: NodeTable,
    asks: list[Ask],
    ask_of: NDArray[np.int32],
    amounts: NDArray[np.int64] | None,
    rows: NDArray[np.int32],
    pools: NDArray[np.int32],
) -> None: ...
