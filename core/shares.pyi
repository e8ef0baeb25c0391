class Shares:
    n_rows: int
    n_kinds: int
    n_blocks: int
    def __init__(self) -> None: ...
