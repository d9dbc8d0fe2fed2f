"""Draws the Lyapunov function of FedQCL's runs: ``python drift.py runs/NAME ...`` writes ``drift.png``."""

import sys

from matplotlib.figure import Figure

from fedqcl.run import RunFolder


def draw(paths):
    figure = Figure(layout="constrained")
    ax = figure.add_subplot()
    for folder in map(RunFolder, paths):
        rows = folder.read_metrics()
        values = [row["lyapunov"] for row in rows if "lyapunov" in row]
        ax.plot(range(1, len(values) + 1), values, label=folder.path.name)
    ax.set_xlabel("communication round")
    ax.set_ylabel("Lyapunov function, mean over clients")
    ax.legend()
    return figure


if __name__ == "__main__":
    draw(sys.argv[1:]).savefig("drift.png")
