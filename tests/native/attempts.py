"""Figures that a busy machine can push one way only."""

from collections.abc import Callable


def attempts(measure: Callable[[], float], wanted: float, within: float, most: int = 4) -> list[float]:
    """Measures until a figure is as near as that to what is wanted, or often enough; all figures, in their order."""
    figures: list[float] = []
    while len(figures) < most:
        figures.append(measure())
        print(f"attempt {len(figures)}: {figures[-1]:.4g}")
        if abs(figures[-1] - wanted) < within:
            break
    return figures
