"""The base class of all explorers, which have traits and an ES module that draws them."""

import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path

import anywidget
import numpy as np
import traitlets

MODULES = Path(__file__).with_name("js")
MIME = "application/vnd.attnopt.explorer+json"

KINDS: dict[str, type["Explorer"]] = {}  # all explorers, by module
# All ES modules by name: those that explorers share, and each explorer's own.
_PATHS = [*MODULES.glob("*.js"), *MODULES.with_name("explorers").glob("*.js")]
SCRIPTS = {path.stem: path for path in sorted(_PATHS) if path.stem not in ("host", "worker")}

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.M)
EXPORT = re.compile(r"^export (?!default\b)(?=(?:async )?(?:function\*?|const|let|class) (\w+))", re.M)
DEFAULT = re.compile(r"^export default ([^;]*);$", re.M)
# With a kernel, all modules are one script; this part of it does what `host.js` does in the page.
DEFINE = """const parts = {};
const attnopt = { define(name, needs, make) { parts[name] = make(...needs.map((needed) => parts[needed])); } };
"""


def module_text(name: str) -> str:
    """The source of the ES module with the given name."""
    return SCRIPTS[name].read_text(encoding="utf-8")


def needed(name: str, text_of: Callable[[str], str] = module_text) -> list[str]:
    """The names of an ES module and of all modules that it needs, each after those that it imports."""
    found = dict.fromkeys(other for _, direct in IMPORT.findall(text_of(name)) for other in needed(direct, text_of))
    return [*found, name]


def classic_script(name: str, text: str) -> str:
    """An ES module as a classic script for the page, which `host.js` loads after the modules that it imports.

    In a page opened as a file, browsers do not load ES modules.
    """
    imports, exports = IMPORT.findall(text), EXPORT.findall(text)
    needs = ", ".join(f'"{direct}"' for _, direct in imports)
    parts = ", ".join(f"{{{' '.join(names.split())}}}" for names, _ in imports)
    if DEFAULT.search(text):
        exports.append("default: widget")
    body = DEFAULT.sub(r"const widget = \1;", EXPORT.sub("", IMPORT.sub("", text)))
    made = f"return {{ {', '.join(exports)} }};"
    return f'"use strict";\nattnopt.define("{name}", [{needs}], ({parts}) => {{\n{body}\n{made}\n}});\n'


def bundle(name: str, text_of: Callable[[str], str] = module_text) -> str:
    """An ES module and all that it needs as one script, which stores their exports in ``parts``."""
    return DEFINE + "".join(classic_script(other, text_of(other)) for other in needed(name, text_of))


class Interval(traitlets.Float):
    """A synchronized number in a closed interval; for other values, such as NaN, an error names the trait."""

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


class Numbers(traitlets.List):
    """A synchronized list, of fixed size, of numbers in a closed interval or of lists of such numbers."""

    def __init__(self, default: list, low: float, high: float):
        self.low, self.high = low, high
        size = len(default[0]) if isinstance(default[0], list) else None
        part = traitlets.List(traitlets.Float(), minlen=size, maxlen=size) if size else traitlets.Float()
        super().__init__(part, default_value=default, minlen=len(default), maxlen=len(default))
        self.tag(sync=True)

    def validate(self, obj: traitlets.HasTraits, value: list) -> list:
        """The numbers, if they lie in the interval."""
        numbers = super().validate(obj, value)
        if not (np.isfinite(numbers).all() and np.min(numbers) >= self.low and np.max(numbers) <= self.high):
            raise traitlets.TraitError(f"{self.name} must lie in [{self.low:g}, {self.high:g}], got {numbers}")
        return numbers


class Explorer(anywidget.AnyWidget):
    """An interactive figure whose state is its synchronized traits.

    A subclass sets ``module`` (the name of its ES module, a file next to its own), ``alt`` (a description in words), and its
    traits, and it implements ``compute``, which returns the numbers that the module draws. With a kernel, the explorer is an
    ipywidget. Its output also contains a JSON form, from which the built page mounts the same module and `attnbook.stills`
    makes the static image that a notebook stores.
    """

    module = ""
    alt = ""
    _css = (MODULES / "explorers.css").read_text(encoding="utf-8")
    _bounds = traitlets.Dict().tag(sync=True)

    def __init__(self, **traits):
        unknown = sorted(set(traits) - set(self.trait_names()))
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(unknown)}; it can be given {', '.join(self._own())}")
        super().__init__(**traits)

    def __init_subclass__(cls, **arguments):
        if "module" in vars(cls):  # not in the class that anywidget derives to add its own traits
            KINDS[cls.module] = cls
            SCRIPTS[cls.module] = Path(inspect.getfile(cls)).with_name(f"{cls.module}.js")
            cls._esm = f"{bundle(cls.module)}export default parts.{cls.module}.default;\n"
        super().__init_subclass__(**arguments)

    def _own(self) -> list[str]:
        """The names of the explorer's own traits."""
        own = set(self.trait_names(sync=True)) - set(anywidget.AnyWidget.class_trait_names())
        return sorted(name for name in own if not name.startswith("_"))

    @traitlets.default("_bounds")
    def _default_bounds(self) -> dict:
        return self.bounds()

    def bounds(self, kernel: bool = True) -> dict:
        """The values that each of the explorer's own traits may take, in the form that the page's controls read.

        Args:
            kernel: whether Python is available; without it, only values that the page can handle itself.

        Returns:
            For each trait, a dict with ``low``, ``high``, and (for integers) ``whole``, or with ``values``, or empty.
        """
        return {name: _bound(self.traits()[name]) for name in self._own()}

    def state(self) -> dict:
        """The values of the explorer's own traits, as JSON types."""
        return {name: getattr(self, name) for name in self._own()}

    def page(self) -> dict:
        """The data from which `host.js` mounts the explorer: module, description, state, and bounds without a kernel."""
        return {"module": self.module, "alt": self.alt, "state": self.state(), "bounds": self.bounds(kernel=False)}

    def compute(self) -> dict:
        """The numbers that the module draws for the present state, as JSON types."""
        raise NotImplementedError

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.state().items())})"

    def _repr_mimebundle_(self, **arguments):
        bundle, metadata = super()._repr_mimebundle_(**arguments) or ({}, {})
        return bundle | {"text/plain": repr(self), MIME: self.page()}, metadata


def _bound(trait: traitlets.TraitType) -> dict:
    """The values that a trait may take: an interval or a list; an empty dict if unknown."""
    if isinstance(trait, traitlets.Enum):
        return {"values": list(trait.values)}
    if isinstance(trait, traitlets.Bool):
        return {"values": [False, True]}
    whole = isinstance(trait, traitlets.Int)
    ends = {"low": getattr(trait, "min" if whole else "low", None), "high": getattr(trait, "max" if whole else "high", None)}
    found = {name: end for name, end in ends.items() if end is not None and math.isfinite(end)}
    return found | ({"whole": True} if whole else {})
