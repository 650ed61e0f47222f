"""The base class of explorers that use exact spectra: the page has those for some d and n, and a kernel adds others."""

import traitlets

from attnbook.explorer import Explorer


class SpectrumExplorer(Explorer):
    """An explorer with the traits ``dim`` (d) and ``n_context`` (n), and a table with data of the spectrum for each d and n.

    A subclass sets ``dims`` and ``contexts``, the values that the page's table covers, and ``row``, which computes an entry.
    """

    dims: tuple[int, ...]
    contexts: tuple[int, ...]
    table = traitlets.Dict().tag(sync=True)

    @staticmethod
    def row(dim: int, n_context: int) -> dict:
        """The data of the spectrum that the module needs for one d and n."""
        raise NotImplementedError

    @traitlets.default("table")
    def _default_table(self) -> dict:
        return {f"{dim} {n_context}": self.row(dim, n_context) for dim in self.dims for n_context in self.contexts}

    @traitlets.observe("dim", "n_context")
    def _answer(self, _) -> None:
        self.table = self.table | {f"{self.dim} {self.n_context}": self.row(self.dim, self.n_context)}

    def bounds(self, kernel: bool = True) -> dict:
        """The traits' bounds; without a kernel, d and n are limited to the spectra that the page contains."""
        carried = {} if kernel else {"dim": {"values": list(self.dims)}, "n_context": {"values": list(self.contexts)}}
        return super().bounds(kernel) | carried
