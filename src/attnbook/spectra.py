"""What explorers of exact spectra have in common: the page carries those of some d and n, a kernel adds others."""

import traitlets

from attnbook.explorer import Explorer


class SpectrumExplorer(Explorer):
    """An explorer with the traits ``dim`` and ``n_context``, and a table of what its module needs of their spectrum.

    A subclass says with ``dims`` and ``contexts`` which the page carries, and with ``row`` what belongs into the table.
    """

    dims: tuple[int, ...]
    contexts: tuple[int, ...]
    table = traitlets.Dict().tag(sync=True)

    @staticmethod
    def row(dim: int, n_context: int) -> dict:
        """What the module needs of the spectrum for d and n."""
        raise NotImplementedError

    @traitlets.default("table")
    def _default_table(self) -> dict:
        return {f"{dim} {n_context}": self.row(dim, n_context) for dim in self.dims for n_context in self.contexts}

    @traitlets.observe("dim", "n_context")
    def _answer(self, _) -> None:
        self.table = self.table | {f"{self.dim} {self.n_context}": self.row(self.dim, self.n_context)}

    def bounds(self, kernel: bool = True) -> dict:
        """As of any explorer; without a kernel, d and n are those whose spectra the page carries."""
        carried = {} if kernel else {"dim": {"values": list(self.dims)}, "n_context": {"values": list(self.contexts)}}
        return super().bounds(kernel) | carried
