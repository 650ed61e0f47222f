"""How fast the trainer of the pages is: Chromium beside a straightforward PyTorch loop and the package's engine, in one run.

    python3 run.py bench [--quick]

Writes results/laboratory_benchmark.json. All train at the paper's settings, each on one core; rounds alternate between them,
so that whatever else the machine does falls on all, and medians count. Rates are by the clock, and by processor time
("cpu"): what the clock would say if the machine did nothing else; that of the page is its process's, to 10 ms. The page has
trained another model before: a page's first one is faster. The plain loops are those of benchmarks/training.py. The book's
laboratory, which trains in a worker, evaluates after every epoch, and draws, is timed by the clock for WATCHED seconds, on
two cores, where the book is built (run.py book). With --quick all runs at tiny sizes, whose times say little, and nothing
is written. Where no Chromium can be started it is left out.
"""

import argparse
import contextlib
import http.server
import importlib.util
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import torch
from training import plain_epoch, same_model, seconds

from attnopt.clustering import Settings, Watch, train

RUNS, ROUNDS, PAGE_EPOCHS, OWN_EPOCHS, ALONE, EVALUATIONS, SHORT, WATCHED = 100, 5, 500, 10, 50, 100, 2, 5
QUICK = {"RUNS": 3, "ROUNDS": 1, "PAGE_EPOCHS": 2, "OWN_EPOCHS": 1, "ALONE": 2, "EVALUATIONS": 2, "SHORT": 1, "WATCHED": 1}
EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
sys.path.append(str(EXPERIMENTS))
import lab  # noqa: E402

RESULT = lab.RESULTS / "laboratory_benchmark.json"
START = """setting => {
  const first = attnopt.createTrainer({ ...setting, seed: 1 });  // the browser compiles the first one's arrays into its code
  for (let epoch = 0; epoch < 30; epoch++) first.epoch();
  globalThis.trainer = attnopt.createTrainer({ ...setting, seed: 1 });
}"""
TRAIN = """([epochs, every]) => {
  for (let epoch = 1; epoch <= epochs; epoch++) {
    trainer.epoch();
    if (epoch % every === 0) trainer.evaluate();
  }
}"""
LABORATORY = lab.ROOT / "_build" / "html" / "laboratory.html"
WATCH = """async (seconds) => {
  const explorer = document.querySelector(".ao-sandbox"), buttons = [...explorer.querySelectorAll("button")];
  const press = (name) => buttons.find((button) => button.textContent === name)?.click();
  const epoch = () => parseFloat(explorer.querySelector("[role=status]").textContent.slice("Epoch ".length));
  const wait = (time) => new Promise((done) => setTimeout(done, time));
  press("show me");
  press("▶ train");
  while (!(epoch() >= 40)) await wait(20);
  const [first, began] = [epoch(), performance.now()];
  while (performance.now() - began < 1000 * seconds && epoch() < 990) await wait(20);
  return 1000 * (epoch() - first) / (performance.now() - began);
}"""
EVALUATE = "times => { for (let n = 0; n < times; n++) trainer.evaluate(); }"


def experiment() -> ModuleType:
    """The script of the same name in experiments/, which opens the page."""
    found = importlib.util.spec_from_file_location("page_trainer", EXPERIMENTS / "laboratory.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


class Page:
    """Asks a page for work and says what it took."""

    def __init__(self, page):
        self.page = page
        self.devices = page.context.browser.new_browser_cdp_session()

    def cpu(self) -> float:
        """Processor time of all pages so far."""
        processes = self.devices.send("SystemInfo.getProcessInfo")["processInfo"]
        return sum(process["cpuTime"] for process in processes if process["type"] == "renderer")

    def seconds(self, script: str, given: object) -> tuple[float, float]:
        """Seconds of the clock and of the page's processor time."""
        cpu, wall = self.cpu(), time.perf_counter()
        self.page.evaluate(script, given)
        wall = time.perf_counter() - wall
        return wall, self.cpu() - cpu


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the built book without a log."""

    def log_message(self, *arguments: object) -> None:
        """Keep the terminal for the results."""


def laboratory(page: Page) -> float:
    """Epochs a second in the laboratory of the built book, with its pictures: the median of ROUNDS runs."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=LABORATORY.parent))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rates = []
    for seed in range(ROUNDS):
        opened = page.page.context.browser.new_page(viewport={"width": 1280, "height": 900})
        address = f"http://localhost:{server.server_address[1]}/{LABORATORY.name}"
        opened.goto(f"{address}#sandbox=run:own;seed:{seed};epoch:0;goal:1000", wait_until="load")
        opened.wait_for_selector(".ao-sandbox")
        rates.append(opened.evaluate(WATCH, WATCHED))
        opened.close()
        print(f"  laboratory: {rates[-1]:.1f} by the clock", flush=True)
    server.shutdown()
    return statistics.median(rates)


def ours(seeds: int, epochs: int, every: int) -> tuple[float, float]:
    """Seconds that the package's engine takes."""
    return seconds(lambda: train(range(seeds), Settings(epochs=epochs), Watch(every=every)))


def speed(page: Page, setting: dict) -> dict:
    """Models·epochs a second and milliseconds of an evaluation, medians over the rounds."""
    page.page.evaluate(START, setting)
    work: dict[str, tuple[int, Callable[[], tuple[float, float]]]] = {
        "page": (PAGE_EPOCHS, partial(page.seconds, TRAIN, [PAGE_EPOCHS, math.inf])),
        "page, evaluating every epoch": (PAGE_EPOCHS // 2, partial(page.seconds, TRAIN, [PAGE_EPOCHS // 2, 1])),
        "plain loop": (1, partial(seconds, plain_epoch(by_index=False))),
        "plain loop, fused Adam, batches fetched at once": (1, partial(seconds, plain_epoch(by_index=True, fused=True))),
        "package, one model, evaluating every 10 epochs": (ALONE, partial(ours, 1, ALONE, 10)),
        f"package, {RUNS} models, evaluating every 10 epochs": (RUNS * OWN_EPOCHS, partial(ours, RUNS, OWN_EPOCHS, 10)),
    }
    evaluation = partial(page.seconds, EVALUATE, EVALUATIONS)
    page.seconds(TRAIN, [PAGE_EPOCHS // 2, 1])  # until the browser has compiled it
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    judged = []
    for _ in range(ROUNDS):
        for name, (count, task) in work.items():
            taken[name] += [task() for _ in range(SHORT if name.startswith("plain") else 1)]
            print(f"  {name}: {count / taken[name][-1][0]:.1f} by the clock", flush=True)
        judged.append(evaluation())
    kinds = ("clock", "cpu")
    rate = lambda name, kind: work[name][0] / max(statistics.median(pair[kind] for pair in taken[name]), 0.01)  # noqa: E731
    rates = {name: {word: rate(name, kind) for kind, word in enumerate(kinds)} for name in work}
    plain = {word: max(found[word] for name, found in rates.items() if name.startswith("plain")) for word in kinds}
    if LABORATORY.is_file():
        rates["laboratory, with its pictures"] = {"clock": laboratory(page)}
    millis = {word: 1000 * statistics.median(pair[kind] for pair in judged) / EVALUATIONS for kind, word in enumerate(kinds)}
    return {
        "models·epochs a second": {
            name: {word: round(value, 1) for word, value in found.items()} for name, found in rates.items()
        },
        "times the best plain loop": {
            name: {word: round(value / plain[word], 1) for word, value in found.items()}
            for name, found in rates.items()
            if not name.startswith(("plain", "laboratory"))
        },
        "milliseconds of an evaluation of all 4096 sequences": {word: round(value, 2) for word, value in millis.items()},
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, and nothing is written")
    quick = parser.parse_args(arguments).quick
    globals().update(QUICK if quick else {})
    torch.set_num_threads(1)
    same_model()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    began, pages = time.perf_counter(), experiment()
    with contextlib.ExitStack() as stack:
        try:
            page = stack.enter_context(pages.page())
        except Exception as error:
            print(f"left out, no Chromium could be started: {error}")
            return
        found = speed(Page(page), pages.SETTING)
        browser = page.context.browser.version
    found["settings"] = {
        "load_average": [round(load, 1), round(os.getloadavg()[0], 1)] if hasattr(os, "getloadavg") else None,
        "browser": f"Chromium {browser}",
        "setting": f"Part III's defaults, medians of {ROUNDS} rounds, each on one thread",
    }
    made = lab.provenance("python3 run.py bench", time.perf_counter() - began)
    found = {"provenance": dict.fromkeys(found, made)} | found
    if not quick:
        lab.store(RESULT, found)
    print(lab.written(found))


if __name__ == "__main__":
    main()
