"""The smallest explorer: two numbers and their sum, with a question put first and a tour."""

from bookkit.explorers.base import Explorer, Interval, Numbers


class Toy(Explorer):
    """Two numbers and their sum."""

    module = "toy"
    alt = "Two numbers on a line and a mark at their sum."
    parts = Numbers([1.0, 2.0], 0, 4)
    factor = Interval(1.0, 0.01, 10)

    def compute(self):
        """The sum."""
        return {"sum": self.factor * sum(self.parts)}
