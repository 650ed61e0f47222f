"""The style of all figures: transparent, safe for color-blind readers, and legible at the width of a phone.

The pages invert a figure's lightness and keep its hues in dark mode (``book/_static/book.css``), so one picture serves
both; that is why backgrounds are transparent.
"""

import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.colors import LinearSegmentedColormap

# Okabe and Ito (2008), in an order whose neighbors differ in lightness as well.
BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
GRAY = "#6b6b6b"
CHANGES = LinearSegmentedColormap.from_list("changes", [BLUE, "white", ORANGE])  # decrease, no change, increase


def use_style() -> None:
    """Set the book's Matplotlib style for the running process."""
    plt.rcParams.update(
        {
            "figure.figsize": (6.0, 3.0),
            "figure.dpi": 120,
            "figure.constrained_layout.use": True,
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "savefig.facecolor": "none",
            "savefig.bbox": "standard",
            "axes.prop_cycle": cycler(color=[BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW]),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "lines.linewidth": 1.8,
            "font.size": 11,
            "legend.frameon": False,
            "image.cmap": "cividis",
            "svg.hashsalt": "attnopt",
        }
    )
