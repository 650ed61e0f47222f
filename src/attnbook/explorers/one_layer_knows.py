"""How well one attention layer predicts a parity after n examples, depending on what its head compares."""

import math

import torch
import traitlets

from attnbook.explorer import Explorer, Interval
from attnopt.synthesis import agreement_number, best_agreement, examples_needed, unseen_mass

DECADES, POINTS, LEFT = 7, 71, 0.2
SHARPEST, SOFTEST, STEPS = 6.0, 0.2, 61
SHARPNESS = [SOFTEST + (SHARPEST - SOFTEST) * j / (STEPS - 1) for j in range(STEPS)]
NAMES = ("nothing", "sequences", "positions", "counts", "parity")


class OneLayerKnowsExplorer(Explorer):
    """The share of the variance that is unexplained after n examples of a parity of k out of L tokens.

    Traits:
        knows: what the head compares: "nothing" (its scores count matching tokens at all positions, and it divides by the
            expected sum), "sequences" (all tokens, sharply, with a sink), "positions" (the k relevant tokens), "counts" (how
            many of them are 1), or "parity" (whether that number is odd).
        length: L, the length of a sequence.
        weight: k, the number of tokens that the rule reads; values above L count as L.
        sharpness: β, the inverse temperature of the first head; the others are sharp.
        decades: log₁₀ of the number of examples, which is rounded.
    """

    module = "one_layer_knows"
    alt = (
        "Left: unexplained variance against the number of examples on a logarithmic axis. Five curves "
        "fall from 1 to 0, one after the other: parity, count, positions, and, far to the right, all tokens, if only the "
        "exact matches vote and if all examples do. Right: ν against the inverse temperature, a valley, above a dashed "
        "line at the number of rules."
    )
    knows = traitlets.Enum(list(NAMES), default_value="sequences").tag(sync=True)
    length = traitlets.Int(12, min=2, max=20).tag(sync=True)
    weight = traitlets.Int(5, min=1, max=20).tag(sync=True)
    sharpness = Interval(2.48, SOFTEST, SHARPEST)
    decades = Interval(3.0, 0, DECADES)

    def compute(self) -> dict:
        """Unexplained variance of each head, the least for any head, ν as a function of β, and the examples for 20%."""
        length, weight = self.length, min(self.weight, self.length)
        numbers = [round(10 ** (DECADES * j / (POINTS - 1))) for j in range(POINTS)]
        now = round(10**self.decades)
        own = agreement_number(length, weight, 2, self.sharpness)
        hypotheses = math.comb(length, weight)
        best_sharpness, best = best_agreement(length, weight)
        counts = torch.tensor([math.comb(weight, ones) / 2**weight for ones in range(weight + 1)], dtype=torch.float64)
        bits = {"sequences": length, "positions": weight, "parity": 1}  # cells of equal probability, so many binary digits

        def left(name: str, examples: list[int]) -> list[float]:
            if name == "nothing":
                return [(own - 1) / (n + own - 1) for n in examples]
            if name == "counts":
                return unseen_mass(counts, examples).tolist()
            return [(1 - 0.5 ** bits[name]) ** n for n in examples]

        needed = {name: math.ceil(math.log(LEFT) / math.log1p(-(0.5**digits))) for name, digits in bits.items()}
        needed |= {"nothing": math.ceil((own - 1) * (1 / LEFT - 1) - 1e-6), "counts": int(examples_needed(counts, LEFT))}
        return {
            "numbers": numbers,
            "curves": {name: left(name, numbers) for name in NAMES},
            "left": {name: left(name, [now])[0] for name in NAMES},
            "needed": {name: needed[name] for name in NAMES},
            "now": now,
            "number": own,
            "cells": {"counts": weight + 1} | {name: 2**digits for name, digits in bits.items()},
            "hypotheses": hypotheses,
            "least": max(0.0, 1 - now / hypotheses),
            "best": best,
            "best_sharpness": best_sharpness if math.isfinite(best_sharpness) else None,
            "valley": [agreement_number(length, weight, 2, beta) for beta in SHARPNESS],
        }
