"""What every explorer is made of: traits, an ES module that draws them, and a still picture for viewers without it."""

import base64
import io
import re
from pathlib import Path

import anywidget
import traitlets
from matplotlib.figure import Figure

from bookkit.plotting import use_style

MODULES = Path(__file__).with_name("js")
MIME = "application/vnd.attnopt.explorer+json"


IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.M)
EXPORT = re.compile(r"^export (?!default\b)(?=(?:async )?(?:function\*?|const|let|class) (\w+))", re.M)
DEFAULT = re.compile(r"^export default (.*);$", re.M)


def module_text(name: str) -> str:
    """The ES module of that name, as it is written."""
    return (MODULES / f"{name}.js").read_text(encoding="utf-8")


def module_source(name: str) -> str:
    """An explorer's ES module as one text, for the kernel: the modules that it imports stand before it."""
    own, before, seen = module_text(name), [], []

    def gather(text: str) -> None:
        for _, needed in IMPORT.findall(text):
            if needed not in seen:
                seen.append(needed)
                gather(module_text(needed))
                before.append(EXPORT.sub("", IMPORT.sub("", module_text(needed))))

    gather(own)
    return "\n".join([*before, IMPORT.sub("", own)])


def classic_script(name: str) -> str:
    """The ES module of that name as a classic script for the page, which `host.js` loads after what it imports.

    Browsers load no modules where a page was opened as a file.
    """
    text = module_text(name)
    imports, exports = IMPORT.findall(text), EXPORT.findall(text)
    needs = ", ".join(f'"{needed}"' for _, needed in imports)
    parts = ", ".join(f"{{{' '.join(names.split())}}}" for names, _ in imports)
    if DEFAULT.search(text):
        exports.append("default: widget")
    body = DEFAULT.sub(r"const widget = \1;", EXPORT.sub("", IMPORT.sub("", text)))
    made = f"return {{ {', '.join(exports)} }};"
    return f'"use strict";\nattnopt.define("{name}", [{needs}], ({parts}) => {{\n{body}\n{made}\n}});\n'


class Interval(traitlets.Float):
    """A synchronised number in a closed interval; others, NaN among them, are refused by the trait's name."""

    def __init__(self, default: float, low: float, high: float):
        self.low, self.high = low, high
        super().__init__(default)
        self.tag(sync=True)

    def validate(self, obj: traitlets.HasTraits, value: float) -> float:
        """The value, if it lies in the interval."""
        value = super().validate(obj, value)
        if not self.low <= value <= self.high:
            raise traitlets.TraitError(f"{self.name} must lie in [{self.low:g}, {self.high:g}], got {value}")
        return value


class Points(traitlets.List):
    """Synchronised points of the plane, always as many, each coordinate between -reach and reach."""

    def __init__(self, default: list[list[float]], reach: float):
        self.reach = reach
        pair = traitlets.List(traitlets.Float(), minlen=2, maxlen=2)
        super().__init__(pair, default_value=default, minlen=len(default), maxlen=len(default))
        self.tag(sync=True)

    def validate(self, obj: traitlets.HasTraits, value: list) -> list:
        """The points, if they lie in the square."""
        points = super().validate(obj, value)
        if not all(abs(number) <= self.reach for point in points for number in point):
            raise traitlets.TraitError(f"{self.name} must lie in [-{self.reach:g}, {self.reach:g}], got {points}")
        return points


class Explorer(anywidget.AnyWidget):
    """An interactive figure whose state is its synchronised traits.

    A subclass sets ``module`` (its ES module's name in ``js/``), ``alt`` (what the still shows), its traits, and
    implements ``compute`` (the numbers that the module draws) and ``draw_still``. With a kernel it is an ipywidget;
    its display also carries a JSON form, from which the built page mounts the same module, and a PNG.
    """

    module = ""
    alt = ""
    size: tuple[float, float] = (7, 3.2)
    _css = (MODULES / "explorers.css").read_text(encoding="utf-8")

    def __init__(self, **traits):
        unknown = sorted(set(traits) - set(self.trait_names()))
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(unknown)}; it can be given {', '.join(self._own())}")
        super().__init__(**traits)

    def __init_subclass__(cls, **arguments):
        if "module" in vars(cls):  # not so for the class that anywidget derives to add its own traits
            cls._esm = module_source(cls.module)
        super().__init_subclass__(**arguments)

    def _own(self) -> list[str]:
        """The names of the explorer's own traits."""
        own = set(self.trait_names(sync=True)) - set(anywidget.AnyWidget.class_trait_names())
        return sorted(name for name in own if not name.startswith("_"))

    def state(self) -> dict:
        """The values of the explorer's own traits, as JSON types."""
        return {name: getattr(self, name) for name in self._own()}

    def compute(self) -> dict:
        """The numbers that belong to the present state, as JSON types."""
        raise NotImplementedError

    def draw_still(self, figure: Figure) -> None:
        """Draw the present state on an empty Matplotlib figure."""
        raise NotImplementedError

    def still(self) -> bytes:
        """The present state as a PNG."""
        use_style()
        figure = Figure(figsize=self.size, layout="constrained")
        self.draw_still(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.state().items())})"

    def _repr_mimebundle_(self, **arguments):
        bundle, metadata = super()._repr_mimebundle_(**arguments) or ({}, {})
        still = base64.b64encode(self.still()).decode()
        page = {"module": self.module, "state": self.state(), "alt": self.alt, "still": still}
        return bundle | {"text/plain": repr(self), "image/png": still, MIME: page}, metadata
