"""What the tests of the laboratory share: small trainings in a page, and what is known of them."""

from explorer_pages import mounted

from attnbook.explorers import Sandbox

SMALL = {"p": 2, "length": 5, "k": 2, "width": 6, "count": 64, "batch": 16, "goal": 20, "rate": 0.01}
EACH = SMALL["count"] // SMALL["batch"]
NOW = """async () => {
  const { benchOf, held } = await attnopt.load("bench");
  const state = document.querySelector(".ao-sandbox").laboratory.link.state();
  if (!held(state)) return { frame: null };
  const { model, evaluation, frame } = held(state), { runner, frames } = benchOf(state).own ?? { frames: [] };
  return { weights: model.weights, evaluation, frame, edits: state.edits, live: state.live,
           beside: runner?.beside, last: frames.at(-1)?.steps };
}"""
DIRECT = """async ([{ dim, norm, width, count, seed, ...state }, steps, edits]) => {
  const { createTrainer } = await attnopt.load("trainer"), { p, length, k, rate, beta2, eps, batch, discount } = state;
  const settings = { task: { p, length, k }, dim, norm, width, count, seed, learningRate: rate, betas: [0.9, beta2], eps };
  const trainer = createTrainer({ ...settings, batchSize: batch, discount });
  for (let step = 0; step <= steps; step++) {
    for (const [at, name, ...put] of edits) {
      if (at !== step) continue;
      const weights = trainer.weights(), masks = trainer.masks;
      if (name === "query") weights.query = weights.query.map((part) => part * put[0]);
      else if (name in weights) weights[name][put[0]] = put.slice(1);
      else masks[name][put[0]] = 0;
      trainer.set({ weights, ...masks });
    }
    if (step < steps) trainer.step();
  }
  return { weights: trainer.weights(), evaluation: trainer.evaluate() };
}"""


def open_laboratory(show, asked="", device=None, **traits):
    """Open the laboratory with small settings, or others, at an address or without one: the page and the explorer."""
    settings = SMALL | {"run": "own", "epoch": 0} | traits
    page = show(Sandbox(("success",), **settings), hash=f"#sandbox={asked}" if asked else "", **(device or {}))
    page.settings = {name: getattr(Sandbox, name).default_value for name in ("dim", "norm", "beta2", "eps", "discount")}
    page.settings |= {"seed": 0} | settings
    page.laboratory = page.url.split("#")[0]
    return page, mounted(page)


def reach(page, said):
    """Wait until the readout begins so."""
    page.wait_for_function("said => document.querySelector('[role=status]').textContent.startsWith(said)", arg=said)


def settle(page, epoch):
    """What is shown once an epoch is trained and nothing changes any more."""
    before, now = None, page.evaluate(NOW)
    while now != before or now["frame"] != round(epoch * EACH):
        page.wait_for_timeout(80)
        before, now = now, page.evaluate(NOW)
    reach(page, f"Epoch {epoch:g}:" if epoch == round(epoch) else f"Epoch {epoch:.2f}:")
    return now


def alert(explorer):
    return explorer.locator(".ao-alert").inner_text()


def pressed(explorer, name, key=None):
    """Press a button by a key, or click it, where it may be folded away."""
    node = explorer.get_by_role("button", name=name, exact=True)
    node.press(key) if key else node.click()


def unfold(explorer):
    explorer.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")


def fill(explorer, label, text):
    unfold(explorer)
    field = explorer.get_by_label(label, exact=True)
    field.fill(text)
    field.press("Enter")
    return field
