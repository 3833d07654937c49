"""Style of the pictures, and the latency picture that all examples share."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

if "ipykernel" not in sys.modules:
    # A script writes pictures to files rather than to a window.
    matplotlib.use("Agg")

BLUE, ORANGE, GREY, RED = "#2b6cb0", "#dd6b20", "#a0aec0", "#c53030"

plt.rcParams.update(
    {
        "figure.dpi": 100,
        "savefig.dpi": 100,
        "figure.constrained_layout.use": True,
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e2e8f0",
        "legend.frameon": False,
    }
)


def draw_latencies(latencies_ns: np.ndarray, what: str, one: str = "request") -> Axes:
    """Draws the distribution of latencies with p50, p99 and p999, and prints these percentiles."""
    microseconds = np.asarray(latencies_ns) / 1e3
    marks = dict(
        zip(("p50", "p99", "p999"), np.percentile(microseconds, [50, 99, 99.9]), strict=True)
    )
    _, axes = plt.subplots(figsize=(7, 3.4))
    low, high = microseconds.min(), max(microseconds.max(), marks["p999"] * 1.5)
    axes.hist(microseconds, bins=np.geomspace(low, high, 90), color=BLUE)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel=f"latency of a {one} (µs, logarithmic)",
        ylabel=f"{one}s (logarithmic)",
        title=f"{len(microseconds):,} {what}",
    )
    axes.set_ylim(0.7, axes.get_ylim()[1] * 6)
    # Labels of many decades would overlap.
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1e3 * low else (1,)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    # At different heights, so that close labels do not overlap.
    for height, (name, value) in zip((0.97, 0.87, 0.77), marks.items(), strict=True):
        axes.axvline(value, color=RED, linewidth=1, linestyle="--")
        axes.annotate(
            f" {name} {value:,.0f} µs",
            (value, height),
            xycoords=("data", "axes fraction"),
            color=RED,
            va="top",
        )
    print(
        f"{len(microseconds):,} {what}: " + ", ".join(f"{n} {v:,.0f} µs" for n, v in marks.items())
    )
    return axes


def show(path: Path) -> None:
    """Shows the picture in a notebook; in a script, writes it to a file and prints the path."""
    if "ipykernel" in sys.modules:
        plt.show()
        return
    path.parent.mkdir(exist_ok=True)
    plt.savefig(path)
    plt.close()
    print(f"picture: {path.relative_to(path.parents[2])}")
