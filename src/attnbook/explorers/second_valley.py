"""Training of one layer from any start in a plane: it ends at the optimum or at a second local minimum."""

import math

import numpy as np
import torch
import traitlets
from scipy.integrate import solve_ivp

from attnbook.explorer import Explorer, Interval, Numbers
from attnopt.in_context import second_valley, valley_loss

REACH, HORIZON, TIMES, ANGLES = 2.0, 1000.0, 80, 61
NEAR = 0.1  # losses within this share of the minima's difference count as having reached a minimum
COLUMNS, CUTS = 15, 7


class SecondValleyExplorer(Explorer):
    """Gradient flow on the exact loss of one layer, for parameters that are invariant under a sign flip of coordinate 2.

    Here d = 2, Σ = diag(1, second), b = (b₁, 0, β), and A has the blocks A₁ = diag(a₁, a₂) and α = (α₁, 0), its last row.
    The flow starts with A = 0.

    Traits:
        start: the initial values of b₁ and β.
        second: the second eigenvalue of Σ.
        examples: n, the number of examples in a prompt.
    """

    module = "second_valley"
    alt = (
        "Left: a quarter of a plane, split by a line through 0: starts near the upright axis end at the optimum, those near "
        "the level axis, hatched, in the second valley; from a square there a curve leads to a dashed ray in the hatched "
        "part. Right: the loss against the angle, a curve with a low end at 0 degrees, a hill, and a higher dip near 80 "
        "degrees; the path of training comes from above and ends in that dip."
    )
    start = Numbers([1.2, 0.6], 0, REACH)
    second = Interval(0.5, 0.1, 1)
    examples = traitlets.Int(20, min=1, max=200).tag(sync=True)

    def _spectrum(self) -> torch.Tensor:
        return torch.tensor([1, self.second], dtype=torch.float64)

    def _family(self) -> tuple[np.ndarray, ...]:
        """The loss is f⋆ + Σ kᵢ(Ãᵢ - sᵢ)² + a quadratic form in a₁b₁, βα₁ and a₂b₁; returns k, s and the form's c."""
        spectrum, n = np.array([1, self.second]), self.examples
        trace, squares = spectrum.sum(), (spectrum**2).sum()
        scale = spectrum**2 * ((n + 1) * spectrum + trace) / n
        target = -n / ((n + 1) * spectrum + trace)
        return (
            scale,
            target,
            np.array([1 + 2 / n, trace + 2 / n, (1 + 2 / n) * (trace**2 + 2 * squares), self.second**2 / n]),
        )

    def _losses(self, states: np.ndarray) -> np.ndarray:
        """The loss at states (b₁, β, a₁, a₂, α₁), shape (..., 5)."""
        (k1, k2), (s1, s2), (key, both, label, rest) = self._family()
        b, beta, a1, a2, alpha = np.moveaxis(states, -1, 0)
        floor = valley_loss(torch.zeros((), dtype=torch.float64), self._spectrum(), self.examples).item()
        p, q = a1 * b, beta * alpha
        odd = k1 * (beta * a1 + b * alpha - s1) ** 2 + k2 * (beta * a2 - s2) ** 2
        return floor + odd + key * p**2 + 2 * both * p * q + label * q**2 + rest * (a2 * b) ** 2

    def _follow(self, start: list[float], times: np.ndarray, accuracy: float = 1e-11) -> np.ndarray:
        """States of the flow at increasing times, the first 0, shape (times, 5)."""
        (k1, k2), (s1, s2), (key, both, label, rest) = (part.tolist() for part in self._family())

        def velocity(_, state):
            b, beta, a1, a2, alpha = state.tolist()
            first, other = 2 * k1 * (beta * a1 + b * alpha - s1), 2 * k2 * (beta * a2 - s2)
            p, q, r = a1 * b, beta * alpha, a2 * b
            by_p, by_q, by_r = 2 * (key * p + both * q), 2 * (both * p + label * q), 2 * rest * r
            return [
                -(first * alpha + by_p * a1 + by_r * a2),
                -(first * a1 + other * a2 + by_q * alpha),
                -(first * beta + by_p * b),
                -(other * beta + by_r * b),
                -(first * b + by_q * beta),
            ]

        span, state = (0.0, times[-1]), [*start, 0.0, 0.0, 0.0]
        return solve_ivp(velocity, span, state, method="LSODA", t_eval=times, rtol=accuracy, atol=accuracy / 100).y.T

    def compute(self) -> dict:
        """The trajectory in the plane and its losses, the losses of both minima, the loss by angle, and where training ends.

        ``valley`` is 0 if training reaches the optimum, 1 if it reaches the second local minimum, and -1 otherwise.
        """
        spectrum, n = self._spectrum(), self.examples
        times = np.concatenate([[0], np.geomspace(0.01, HORIZON, TIMES - 1)])
        states = self._follow(self.start, times)
        losses = self._losses(states)
        angles = torch.linspace(0, math.pi / 2, ANGLES, dtype=torch.float64)
        along, found = valley_loss(angles, spectrum, n), second_valley(spectrum, n)
        floor, (angle, other) = along[0].item(), found or (None, None)
        near = NEAR * ((other or 2 * floor) - floor)
        valley = 0 if losses[-1] < floor + near else 1 if found and abs(losses[-1] - other) < near else -1
        return {
            "times": times.tolist(),
            "path": states[:, :2].tolist(),
            "losses": losses.tolist(),
            "angles": torch.rad2deg(angles).tolist(),
            "along": along.tolist(),
            "floor": floor,
            "second_angle": None if angle is None else math.degrees(angle),
            "second_floor": other,
            "times_floor": other / floor if found else None,
            "end_angle": math.degrees(math.atan2(*states[-1, :2])),
            "valley": valley,
        }

    def _divide(self, floor: float, other: float) -> list[list[float]]:
        """Points of the line that separates starts by the minimum they reach, found by bisection in each column."""
        found, low = [], 0.0
        times = np.array([0, HORIZON / 4])
        for b in np.linspace(0.02, REACH, COLUMNS):
            high = REACH + 0.1
            for _ in range(CUTS):
                middle = (low + high) / 2
                end = self._losses(self._follow([b, middle], times, 1e-6)[-1])  # only the valley matters
                low, high = (low, middle) if end < other - NEAR * (other - floor) else (middle, high)
            found.append([b, (low + high) / 2])
        return found
