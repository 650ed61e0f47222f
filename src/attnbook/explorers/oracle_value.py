"""The value of an oracle's labels for three tokens: the parts of the label's value, and the gain of a step."""

import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Interval, Numbers
from attnbook.explorers.attention_field import BY_HAND, CLASSES
from attnopt.synthesis import attention_spread, gain_bounds, information_split, oracle_value

REACH, LONGEST, POINTS = 2.4, 3.0, 61


def wrong(value: Tensor, tokens: Tensor, theta: Tensor, posterior: Tensor) -> Tensor:
    """Cross-entropy of posteriors and the beliefs at the features tokens + value, shape (3, answers)."""
    scores = (tokens + value) @ theta.mT
    return scores.logsumexp(-1) - (posterior * scores).sum(-1)


class OracleValueExplorer(Explorer):
    """The value V(O) of an oracle, the other parts of the label's value, and the gain of a step.

    There are three equally likely tokens and three classes. A token's class is drawn from σ(N/truth) with N = zθᵀ, and the
    belief is σ(N), which is calibrated for truth 1.

    Traits:
        oracle: "witness" (names the class, correctly with probability (1 + 2 reliability)/3, else one of the other two at
            random), "hint" (says whether it is class 3, correctly with probability (1 + reliability)/2), both used by
            Bayes' rule; or "own" (the belief itself at another temperature, σ(N/T)).
        reliability: the oracle's reliability, from 0 (no information) to 1.
        temperature: the temperature T of the labels "own".
        truth: the temperature of the data distribution.
        step: the step size h of the block.
        tokens: features z of the tokens, three pairs.
    """

    module = "oracle_value"
    alt = (
        "Left: a plane with three class vectors, hollow, and three tokens, filled; from each token three arrows lead to "
        "where a step takes it, one for each answer of the oracle, thicker if likelier. Right, above: a bar in two "
        "parts, what the oracle is worth and what it leaves, as long as the bar below it, the trace of attention's "
        "Jacobian. Right, below: the gain against the step, a curve between a straight line and a parabola, under a dashed "
        "line."
    )
    oracle = traitlets.Enum(["witness", "hint", "own"], default_value="witness").tag(sync=True)
    reliability = Interval(0.6, 0, 1)
    temperature = Interval(0.5, 0.2, 3)
    truth = Interval(1.0, 0.4, 2.5)
    step = Interval(0.6, 0, LONGEST)
    tokens = Numbers(BY_HAND, -REACH, REACH)

    def _world(self) -> tuple[Tensor, ...]:
        """θ, features, beliefs, P(c|z), P(o|z), posteriors (token, answer, class), and the labels supplied."""
        theta, tokens = (torch.tensor(value, dtype=torch.float64) for value in (CLASSES, self.tokens))
        scores = tokens @ theta.mT
        belief, true = scores.softmax(-1), (scores / self.truth).softmax(-1)
        sure = self.reliability
        if self.oracle == "witness":
            channel = (1 - sure) / 3 + sure * torch.eye(3, dtype=torch.float64)  # class, answer
        elif self.oracle == "hint":
            third = torch.tensor([0, 0, 1], dtype=torch.float64)
            channel = (1 - sure) / 2 + sure * torch.stack([1 - third, third], -1)
        else:
            channel = torch.ones(3, 1, dtype=torch.float64)
        joint = true[:, None] * channel.mT
        shares = joint.sum(-1)
        posterior = joint / shares[..., None]
        labels = (scores / self.temperature).softmax(-1)[:, None] if self.oracle == "own" else posterior
        return theta, tokens, belief, true, shares, posterior, labels

    def compute(self) -> dict:
        """Beliefs, answers, the tokens after a step, the parts of the label's value, the gain, its bounds, and its limit."""
        theta, tokens, belief, true, shares, posterior, labels = self._world()
        answers, weight = shares.shape[1], shares / 3
        beliefs = belief[:, None].expand(3, answers, 3)
        whole = posterior.new_ones(3, 1).expand(3, answers)

        def mean(values: Tensor) -> float:
            return (weight * values * whole).sum().item()

        one_hot = torch.eye(3, dtype=torch.float64)
        label = (true * oracle_value(theta, belief[:, None].expand(3, 3, 3), one_hot.expand(3, 3, 3))).sum().item() / 3
        value = mean(oracle_value(theta, beliefs, posterior))
        off = oracle_value(theta, belief, true).mean().item()
        move = -((belief[:, None] - labels) @ theta)
        still = wrong(0 * move, tokens[:, None], theta, posterior)

        def gain(step: float) -> float:
            return mean(still - wrong(step * move, tokens[:, None], theta, posterior))

        low, high = gain_bounds(theta, beliefs, labels.expand(3, answers, 3), posterior, 1.0)
        slope, square = mean(high), mean(high - low) * 8 / 5  # L is 5/4: the difference is ⅝ of the square
        split = information_split(belief, shares, posterior)
        end = torch.xlogy(posterior, labels) - posterior * belief[:, None].log()
        return {
            "beliefs": belief.tolist(),
            "shares": shares.tolist(),
            "labels": labels.tolist(),
            "ends": (tokens[:, None] + self.step * move).tolist(),
            "parts": [off, value - off, label - value],
            "label": label,
            "trace": attention_spread(theta, belief).mean().item(),
            "slope": slope,
            "square": square,
            "bounds": [self.step * slope - 5 / 8 * square * self.step**2, self.step * slope],
            "gain": gain(self.step),
            "gains": [gain(LONGEST * k / (POINTS - 1)) for k in range(POINTS)],
            "limit": mean(end.sum(-1)),
            "entropies": [part.mean().item() for part in split],
        }
