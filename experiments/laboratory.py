"""How often the trainer of the pages, in JavaScript, succeeds at the paper's setting, beside the package.

    python experiments/laboratory.py [SECTION ...]

Writes results/laboratory.json. "page" trains RUNS seeds of trainer.js for EPOCHS epochs in a headless Chromium, each with
weights, data and an order of its own; "package" counts the 200 models of `load_models`. A run has succeeded if it answers
more than 90 % of all sequences at its end. Finished seeds are kept in .cache/laboratory until the trainer's text changes.
About ten minutes on one free core.
"""

import contextlib
import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from fresh import SUCCESS, share
from joblib import Parallel, delayed
from lab import CACHE, Record, store

import attnbook.explorers  # noqa: F401  (whose scripts are read)
from attnbook.explorer import bundle
from attnopt.clustering.trained import load_overview

RUNS, EPOCHS, AT_A_TIME = 100, 1000, 5
SETTING = {"task": {"p": 2, "length": 12, "k": 5}}  # the trainer's defaults are the package's otherwise
RECORD = Record("laboratory", digits=6)
FLAGS = ["--no-first-run", "--disable-background-networking"]
TRAIN = """([setting, epochs]) => {
  const trainer = attnopt.createTrainer(setting);
  while (trainer.epochs < epochs) trainer.epoch();
  return trainer.evaluate().all;
}"""


@functools.cache
def program() -> str:
    """The trainer and what it imports, as the body of a function that returns what the module exports."""
    return f"{bundle('trainer')}\nreturn parts.trainer;"


@contextlib.contextmanager
def page() -> Iterator:
    """A blank page of the system's Chromium, or Playwright's own, in which ``attnopt`` is the trainer's module."""
    from playwright.sync_api import sync_playwright

    from attnbook.chromium import launch

    with sync_playwright() as playwright:
        browser = launch(playwright, *FLAGS)
        blank = browser.new_page()
        blank.evaluate("text => { globalThis.attnopt = new Function(text)(); }", program())
        yield blank
        browser.close()


def kept(seed: int, epochs: int) -> Path:
    """Where a seed's accuracy is kept, by the trainer's text."""
    text = hashlib.sha256(program().encode()).hexdigest()[:12]
    return CACHE / "laboratory" / text / f"{epochs} epochs" / f"{seed}.json"


def accuracies(seeds: list[int], epochs: int = EPOCHS) -> list[float]:
    """The accuracy on all sequences with which each seed ends."""
    if missing := [seed for seed in seeds if not kept(seed, epochs).exists()]:
        with page() as blank:
            for seed in missing:
                store(kept(seed, epochs), blank.evaluate(TRAIN, [SETTING | {"seed": seed}, epochs]))
    return [json.loads(kept(seed, epochs).read_text(encoding="utf-8")) for seed in seeds]


def counted(accuracy: list[float]) -> dict:
    """The accuracies, and how many succeeded of how many, with the share's 95 % interval."""
    return {"accuracy": accuracy, "succeeded": share(sum(one > SUCCESS for one in accuracy), len(accuracy))}


@RECORD.section
def page_() -> dict:
    """RUNS seeds in Chromium."""
    seeds = [list(range(at, min(at + AT_A_TIME, RUNS))) for at in range(0, RUNS, AT_A_TIME)]
    parts = Parallel()(delayed(accuracies)(some) for some in seeds)
    return counted([one for part in parts for one in part])


@RECORD.section
def package() -> dict:
    """The models that the package has trained."""
    return counted(load_overview()["accuracy"].tolist())


if __name__ == "__main__":
    RECORD.main()
