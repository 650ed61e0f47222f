"""The smallest explorer: two numbers and their sum, with a question put first and a tour."""

import traitlets

from attnbook.explorer import Explorer, Interval, Numbers


class Toy(Explorer):
    """Two numbers and their sum."""

    module = "toy"
    alt = "Two numbers on a line and a mark at their sum."
    parts = Numbers([1.0, 2.0], 0, 4)
    factor = Interval(1.0, 0.01, 10)
    rounds = traitlets.Int(1, min=1, max=2_000_000_000).tag(sync=True)
    limit = traitlets.Enum((8, 100), 100).tag(sync=True)
    note = traitlets.Unicode("").tag(sync=True)

    def compute(self):
        """The sum."""
        return {"sum": self.factor * sum(self.parts)}
