"""Draws docs/images/conflict.png and conflict-dark.png: two updates that conflict, under FedAvg and under FedFV.

    python scripts/draw_conflict.py

All arrows are computed by the rules themselves.
"""

from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedfv import FedAvg, FedFV, Replies

IMAGES = Path(__file__).parents[1] / "docs" / "images"
UPDATES = torch.tensor([[3.6, 0.5], [-1.2, 1.0]], dtype=torch.double)  # the second client has the larger loss
THEMES = {
    "conflict.png": {"ground": "white", "text": "#222222", "faint": "#999999"},
    "conflict-dark.png": {"ground": "#0d1117", "text": "#e6edf3", "faint": "#6e7681"},
}
FIRST, SECOND, STEP = "#0072B2", "#E69F00", "#009E73"


def main() -> None:
    """Draws both pictures."""
    replies = Replies(
        round=0,
        clients=torch.tensor([0, 1]),
        updates=UPDATES,
        losses=torch.tensor([0.3, 1.2], dtype=torch.double),
        sizes=torch.tensor([50, 50]),
    )
    rules: list[Any] = [FedAvg(), FedFV(alpha=0.0, tau=0)]
    mean, fair = (rule(replies, rule.init(num_clients=2, dim=2))[0] for rule in rules)
    changed = _without_conflict(UPDATES)
    for name, theme in THEMES.items():
        figure = Figure(figsize=(9, 2.1), dpi=200, facecolor=theme["ground"], layout="constrained")
        left, right = figure.subplots(1, 2)
        _frame(left, theme, "The plain mean works against B")
        _arrow(left, UPDATES[0], FIRST, "update of A", theme)
        _arrow(left, UPDATES[1], SECOND, "update of B", theme)
        _arrow(left, mean, STEP, "mean", theme, wide=True)
        _frame(right, theme, "FedFV removes what conflicts, then averages")
        for update, colour in zip(UPDATES, (FIRST, SECOND), strict=True):
            _arrow(right, update, colour, "", theme, dashed=True)
        for update, colour, client in zip(changed, (FIRST, SECOND), "AB", strict=True):
            _arrow(right, update, colour, f"{client} without its conflict", theme)
        _arrow(right, fair, STEP, "step", theme, wide=True)
        figure.savefig(IMAGES / name)


def _without_conflict(updates: torch.Tensor) -> torch.Tensor:
    """Each update without its part along the other one."""
    other = updates.flip(0)
    share = (updates * other).sum(dim=1, keepdim=True) / other.square().sum(dim=1, keepdim=True)
    return updates - share * other


def _frame(axes: Axes, theme: dict[str, str], title: str) -> None:
    axes.set(xlim=(-2.3, 4.7), ylim=(-0.15, 2.35), aspect="equal")
    axes.set_title(title, color=theme["text"], fontsize=10)
    axes.axis("off")
    axes.plot(0, 0, "o", color=theme["text"], markersize=4)


def _arrow(
    axes: Axes,
    tip: torch.Tensor,
    colour: str,
    text: str,
    theme: dict[str, str],
    *,
    dashed: bool = False,
    wide: bool = False,
) -> None:
    x, y = tip.tolist()
    style = {"arrowstyle": "-|>", "color": colour, "lw": 3 if wide else 1.8, "mutation_scale": 16}
    if dashed:
        style |= {"ls": "--", "lw": 1, "alpha": 0.6, "mutation_scale": 9}
    axes.annotate("", xy=(x, y), xytext=(0, 0), arrowprops={**style, "shrinkA": 0, "shrinkB": 0})
    if wide:
        axes.text(x, y + 0.08, text, color=theme["text"], fontsize=9, ha="center", va="bottom")
    elif text:
        side, gap = ("left", 0.08) if x > 0 else ("right", -0.08)
        axes.text(x + gap, y, text, color=theme["text"], fontsize=9, ha=side, va="center")


if __name__ == "__main__":
    main()
