"""Draws cost against the number of nodes from what `./yard bench kernel --json FILE` wrote:

.venv/bin/pip install 'beeyard[chart]' && .venv/bin/python -m benchmarks.chart FILE docs/kernel-cost.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

CASES = {
    "one-off plain": ("o", "#1b6ca8"),
    "one-off filtered": ("s", "#d1495b"),
    "one-off spread": ("^", "#66a182"),
    "best fit": ("D", "#8d5b9e"),
    "group": ("v", "#c9a227"),
}


def main() -> None:
    """Read the figures, write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    source, target = sys.argv[1:]
    rows = json.loads(Path(source).read_text())
    figure, axes = pyplot.subplots(figsize=(8, 5), dpi=110)
    for case, (marker, colour) in CASES.items():
        points = sorted(
            (row["nodes"], row["cpu_us_per_task"], row["ratio_to_oracle"]) for row in rows if row["case"] == case
        )
        nodes = [point[0] for point in points]
        axes.plot(nodes, [point[1] for point in points], marker=marker, color=colour, label=case)
        if case != "group":
            python = [us * ratio for _, us, ratio in points]
            axes.plot(nodes, python, marker=marker, color=colour, linestyle=":", alpha=0.5)
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="processor time a task, µs")
    axes.set_title("What a decision costs (dotted: the same in plain Python)")
    axes.grid(which="major", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(target, metadata={"Software": None})


if __name__ == "__main__":
    main()
