"""Trainings of the reader's own in the laboratory: played, changed on the way, compared, in twenties, in files."""

import csv
import functools
import json
import os
import random
import re

import pytest
import torch
from conftest import begin_with
from explorer_pages import assert_finite, drag, mounted, status
from laboratory_pages import DIRECT, EACH, NOW, alert, fill, open_laboratory, pressed, reach, settle, unfold
from test_readouts import drag_by_touch

from attnopt.clustering import Models, Task

# Draws are other ones each time; ATTNOPT_LABORATORY_SEED, printed in what fails, brings them back.
SEED = int(os.environ.get("ATTNOPT_LABORATORY_SEED", random.SystemRandom().randrange(2**32)))


@pytest.fixture
def laboratory(show):
    """Open the laboratory with small settings."""
    return functools.partial(open_laboratory, show)


def test_an_address_trains_the_same_everywhere(laboratory, alone):
    chance, folder = random.Random(SEED), alone[0]
    print(f"ATTNOPT_LABORATORY_SEED={SEED}")
    p, length = chance.choice(((2, 5), (2, 8), (3, 4), (5, 3)))
    drawn = {"p": p, "length": length, "k": chance.randint(1, length), "dim": chance.randint(1, 4)}
    drawn |= {"width": chance.randint(1, 16), "seed": chance.randrange(2**32), "norm": chance.choice(("rms", "unit"))}
    drawn |= {"rate": round(10 ** chance.uniform(-4, -2), 6), "beta2": round(chance.uniform(0.9, 0.999), 4)}
    address = "run:own;epoch:20;" + ";".join(f"{name}:{value}" for name, value in drawn.items())
    seen = []
    for way in ("worker", "again", "slices", "file"):
        page, explorer = laboratory(run="success", epoch=1000)
        if way == "slices":
            begin_with(page, "delete globalThis.Worker;")
        page.goto("about:blank")
        path = folder / f"{len(list(folder.iterdir())) - 1}.html"
        served = path.as_uri() if way == "file" else f"{alone[1]}{path.name}"
        page.complaints.clear()
        page.goto(f"{served}#sandbox={address}")
        explorer = mounted(page)
        now = settle(page, 20)
        assert now.pop("beside") == (way in ("worker", "again"))
        assert [one for one in page.complaints if not one.startswith("elsewhere: file:")] == []
        assert_finite(explorer)
        pictures = explorer.locator("canvas").evaluate_all("all => all.map((one) => one.toDataURL())")
        seen.append((now, status(explorer), explorer.locator(".ao-panels").first.inner_html().split("<canvas"), pictures))
    assert all(one == seen[0] for one in seen[1:])
    now, said, markup, _ = seen[0]
    assert "polyline" in "".join(markup)
    direct = page.evaluate(DIRECT, [page.settings | drawn, 20 * EACH, []])
    assert now["weights"] == direct["weights"]
    measured = direct["evaluation"]
    for name in ("loss", "train", "all", "suffix", "permutation", "parity", "influences"):
        assert now["evaluation"][name] == measured[name]
    train, everywhere = (float(re.search(f"([0-9.]+)% of {of}", said)[1]) for of in ("the training set", "all sequences"))
    assert [train, everywhere] == pytest.approx([100 * measured["train"], 100 * measured["all"]], abs=0.05 + 1e-9)  # ties


def test_train_pause_step_and_back(laboratory):
    page, explorer = laboratory(goal=30)
    live, epoch = explorer.get_by_role("status"), explorer.get_by_role("slider", name="epoch")
    explorer.get_by_label("speed").select_option("5 epochs per second")
    pressed(explorer, "▶ train", "Enter")
    assert live.get_attribute("aria-live") == "off"
    page.wait_for_function("parseInt(document.querySelector('[role=status]').textContent.slice(6)) > 0")
    pressed(explorer, "❚❚ pause")
    assert live.get_attribute("aria-live") == "polite"
    page.wait_for_timeout(500)
    held = status(explorer)
    assert page.evaluate(NOW)["frame"] == page.evaluate(NOW)["last"]  # a change would be made at the last epoch
    page.wait_for_timeout(500)
    assert status(explorer) == held
    paused = page.evaluate(NOW)["frame"]
    pressed(explorer, "one step", "Space")
    assert settle(page, (paused + 1) / EACH)["frame"] == paused + 1
    pressed(explorer, "one step")
    settle(page, (paused + 2) / EACH)
    explorer.get_by_label("speed").select_option("as fast as possible")
    pressed(explorer, "▶ train")
    end = settle(page, 30)  # it stops where it shall
    assert end["weights"] == page.evaluate(DIRECT, [page.settings, 30 * EACH, []])["weights"]
    assert live.get_attribute("aria-live") == "polite"
    pressed(explorer, "▶ train")
    assert "The run is trained to epoch 30." in alert(explorer)
    epoch.press("Home")
    assert status(explorer).startswith("Epoch 0:")
    assert epoch.get_attribute("aria-valuetext") == "0"
    epoch.press("ArrowRight")
    assert status(explorer).startswith("Epoch 0.25:")  # slow, it was told step by step
    pressed(explorer, "▶ train")  # all of it is known already
    reach(page, "Epoch 30:")
    explorer.get_by_role("button", name="▶ train").wait_for()
    loss = explorer.locator(".ao-panel-loss svg")
    loss.click(position={"x": 0.5 * loss.bounding_box()["width"], "y": 30})
    assert 5 < float(status(explorer).split()[1].rstrip(":")) < 25
    fill(explorer, "train to epoch", "40")
    pressed(explorer, "▶ train")  # on from an earlier epoch
    assert settle(page, 40)["weights"] == page.evaluate(DIRECT, [page.settings, 40 * EACH, []])["weights"]
    fill(explorer, "train to epoch", "10000")
    explorer.get_by_label("speed").select_option("10 steps per second")
    pressed(explorer, "▶ train")
    page.wait_for_function(f"document.querySelector('.ao-sandbox').laboratory.bench.own.last > {40 * EACH}")
    assert page.evaluate(NOW)["last"] <= 40 * EACH + 2 * EACH  # told one by one, not by epochs
    pressed(explorer, "reset")  # which stops it, as any other state does
    assert live.get_attribute("aria-live") == "polite"
    assert explorer.get_by_role("button", name="▶ train").is_visible()
    reach(page, "Epoch 0:")
    pressed(explorer, "▶ train")
    explorer.get_by_role("radio").first.check()
    assert live.get_attribute("aria-live") == "polite"
    pressed(explorer, "train on from here")
    assert explorer.get_by_role("button", name="❚❚ pause").is_visible()
    explorer.get_by_text("from the run “success” at epoch 1000").wait_for()
    assert page.complaints == []


def test_it_rests_while_nobody_sees_it(laboratory):
    page, explorer = laboratory(goal=10_000)
    page.evaluate("document.body.style.paddingBottom = '4000px'")
    explorer.get_by_label("speed").select_option("25 epochs per second")
    pressed(explorer, "▶ train")
    hide = "Object.defineProperty(document, 'hidden', { value: %s, configurable: true });"
    hide += "document.dispatchEvent(new Event('visibilitychange'));"
    away = "wanted => document.querySelector('.ao-sandbox').laboratory.away === wanted"
    told = "() => document.querySelector('[role=status]').textContent"
    for leave, back in (
        (lambda: page.evaluate("scrollTo(0, 3900)"), lambda: page.evaluate("scrollTo(0, 0)")),
        (lambda: page.evaluate(hide % "true"), lambda: page.evaluate(hide % "false")),
    ):
        before = page.evaluate(told)
        page.wait_for_function(f"before => ({told})() !== before", arg=before)
        leave()
        if page.evaluate("scrollY"):
            page.wait_for_function(away, arg=True)
        page.wait_for_timeout(600)  # what was on its way arrives
        held = page.evaluate(told)
        page.wait_for_timeout(600)
        assert page.evaluate(told) == held
        back()
        page.wait_for_function(f"before => ({told})() !== before", arg=held)
    assert page.complaints == []


def test_tokens_and_positions_are_moved(laboratory):
    page, explorer = laboratory()
    pressed(explorer, "▶ train")
    settle(page, 20)
    explorer.get_by_role("slider", name="epoch").press("Home")
    for _ in range(5):
        explorer.get_by_role("slider", name="epoch").press("ArrowRight")
    before = page.evaluate(NOW)["weights"]
    unfold(explorer)
    token = explorer.get_by_role("button", name="token 1:")
    box = token.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    for part in range(1, 6):  # each movement changes the same frame
        page.mouse.move(x + 4 * part, y - 3 * part)
    page.mouse.up()
    first = settle(page, 5)
    assert first["edits"].split()[:3] == [str(5 * EACH), "token", "1"]
    assert first["edits"].count(";") == 0
    put = [float(one) for one in first["edits"].split()[3:]]
    assert first["weights"]["token"][1] == put
    assert put[0] > before["token"][1][0]
    assert put[1] > before["token"][1][1]
    assert {name: value for name, value in first["weights"].items() if name != "token"} == {
        name: value for name, value in before.items() if name != "token"
    }
    explorer.get_by_role("button", name="position 3:").press("ArrowLeft")
    second = settle(page, 5)
    assert second["weights"]["position"][2][0] < before["position"][2][0]
    assert second["weights"]["position"][2][1] == pytest.approx(before["position"][2][1], rel=1e-3)
    unfold(explorer)
    pressed(explorer, "undo the last")
    assert settle(page, 5)["weights"] == first["weights"]
    pressed(explorer, "undo all", "Enter")
    assert settle(page, 5)["weights"] == before
    assert page.complaints == []


def test_a_finger_moves_a_token_of_a_recorded_run(laboratory):
    page, explorer = laboratory(run="success", epoch=1000, device={"has_touch": True, "width": 390})
    before = page.evaluate(NOW)["weights"]
    unfold(explorer)
    drag_by_touch(page, explorer.get_by_role("button", name="token 1:"), 25, 20)
    reach(page, "Epoch 0:")
    now = page.evaluate(NOW)
    assert now["edits"].startswith("0 token 1 ")
    assert now["weights"]["token"][1][0] > before["token"][1][0]
    assert now["weights"]["token"][1][1] < before["token"][1][1]
    assert now["weights"]["token"][0] == before["token"][0]
    assert "from the run “success” at epoch 1000" in explorer.locator(".ao-about").first.inner_text()
    assert page.complaints == []


def test_changes_on_the_way_are_those_of_the_trainer(laboratory):
    page, explorer = laboratory("run:own;epoch:4")
    settle(page, 4)
    unfold(explorer)
    explorer.get_by_role("slider", name="query times").fill("0")
    explorer.get_by_role("slider", name="query times").fill("0.5")
    assert explorer.get_by_role("slider", name="query times").get_attribute("aria-valuetext") == "0.50"
    pressed(explorer, "neuron 3", "Enter")
    neuron = explorer.get_by_role("button", name="neuron 3", exact=True)
    settle(page, 4)
    assert neuron.get_attribute("aria-pressed") == "false"
    pressed(explorer, "▶ train")
    settle(page, 20)
    explorer.get_by_role("slider", name="epoch").press("ArrowLeft")
    pressed(explorer, "position 2", "Space")
    changed = settle(page, 19)
    steps = [4 * EACH, 19 * EACH]
    assert changed["edits"] == f"{steps[0]} query 0.5;{steps[0]} neuron 2 0;{steps[1]} place 1 0"
    edits = [[steps[0], "query", 0.5], [steps[0], "neurons", 2], [steps[1], "positions", 1]]
    assert changed["weights"] == page.evaluate(DIRECT, [page.settings, steps[1], edits])["weights"]
    assert "3 changes, the last at epoch 19" in explorer.locator(".ao-told").inner_text()
    fill(explorer, "train to epoch", "25")
    pressed(explorer, "▶ train")
    now, direct = settle(page, 25), page.evaluate(DIRECT, [page.settings, 25 * EACH, edits])
    assert now["weights"] == direct["weights"]
    for name in ("loss", "all", "influences"):
        assert now["evaluation"][name] == direct["evaluation"][name]
    page.wait_for_function("location.hash.includes('place') && location.hash.includes('epoch:25')")
    said, address = status(explorer), page.url
    page.goto("about:blank")
    page.goto(address)  # anew
    explorer = mounted(page)
    again = settle(page, 25)
    assert (again["weights"], status(explorer)) == (now["weights"], said)
    unfold(explorer)
    for place in (1, 3, 4):
        pressed(explorer, f"position {place}")
        settle(page, 25)
    pressed(explorer, "position 5")
    assert alert(explorer) == "At least one position must stay on. Nothing was changed."
    assert page.complaints == []


@pytest.mark.parametrize(("kind", "value"), [("learning rate", "0.1"), ("order of the batches (a seed)", "4294967295")])
def test_a_second_run_is_the_same_until_it_is_another(kind, value, laboratory):
    page, explorer = laboratory("run:own;epoch:3")
    settle(page, 3)
    unfold(explorer)
    explorer.get_by_label("what differs").select_option(kind)
    explorer.get_by_label("its value in the second run").fill("much")
    pressed(explorer, "split here")
    assert alert(explorer) == "The value in the second run must be a number; you entered “much”."
    explorer.get_by_label("its value in the second run").fill("−1")
    pressed(explorer, "split here")
    assert "Nothing was changed." in alert(explorer)
    explorer.get_by_label("its value in the second run").fill(value)
    pressed(explorer, "split here", "Enter")
    beside = explorer.locator(".ao-beside")
    beside.wait_for()
    assert f"{kind} {value} from epoch 3 on (pink curves)" in beside.inner_text()
    assert explorer.locator(".ao-panel-loss .ao-second").is_visible()
    pressed(explorer, "▶ train")
    settle(page, 20)
    own, other = page.evaluate(
        "['own', 'other'].map((which) => document.querySelector('.ao-sandbox').laboratory.bench[which].frames"
        ".map(({ steps, weights }) => [steps, Array.from(weights)]))"
    )
    assert len(own) == len(other) == 21
    for (steps, mine), (_, theirs) in zip(own, other, strict=True):
        assert (mine == theirs) == (steps <= 3 * EACH)
    assert "at epoch 20: loss" in beside.inner_text()
    assert_finite(explorer)
    pressed(explorer, "end")
    assert not beside.is_visible()
    assert not explorer.locator(".ao-panel-loss .ao-second").is_visible()
    assert page.complaints == []


ESCAPED = """async ([{ p, length, k, rate, beta2, batch, dim, norm, width, count, seed, eps, discount }, epochs]) => {
  const { createTrainer } = await attnopt.load("trainer"), same = { dim, norm, width, count, seed, eps, discount };
  const one = createTrainer({ task: { p, length, k }, learningRate: rate, betas: [0.9, beta2], batchSize: batch, ...same });
  for (let epoch = 1; epoch <= epochs; epoch++) if (one.epoch() < 0.6 * Math.log2(p)) return String(epoch);
  return "";
}"""  # the first epoch whose mean loss says that the plateau is left


def test_twenty_seeds_start_as_the_run_shown_does_and_their_lists_stay(laboratory):
    page, explorer = laboratory(length=3, k=1, goal=3, seed=5)
    unfold(explorer)
    pressed(explorer, "train them", "Enter")
    page.wait_for_function("document.querySelectorAll('.ao-seeds button').length === 20")
    page.evaluate("location.hash = '#sandbox=edits:0%20place%200%200'")  # the only token that counts is not seen
    unfold(explorer)
    pressed(explorer, "train them", "Enter")
    page.wait_for_function("document.querySelectorAll('.ao-seeds button').length === 40")
    lists = explorer.locator(".ao-seeds").all()
    assert "1 change, to epoch 3:" in lists[0].inner_text()
    assert "change" not in lists[1].inner_text()
    shares = [[int(one.split(":")[1].split("%")[0]) for one in some.locator("button").all_inner_texts()] for some in lists]
    assert set(shares[0]) == {50} != set(shares[1])  # the label does not depend on what is seen


MACHINE = """cores => {
  Object.defineProperty(navigator, "hardwareConcurrency", { value: cores });
  globalThis.workers = 0;
  globalThis.Worker = class extends Worker {
    constructor(address) {
      super(address);
      globalThis.workers += 1;
    }
  };
}"""


@pytest.mark.parametrize(("p", "cores", "workers"), [(2, 1, 1), (3, 3, 3), (2, 64, 8)])
def test_twenty_seeds(laboratory, p, cores, workers):
    page, explorer = laboratory(p=p, length=3, k=1, goal=6, seed=5)
    page.evaluate(MACHINE, cores)
    unfold(explorer)
    pressed(explorer, "train them", "Enter")
    fold = explorer.locator(".ao-folded").filter(has=page.locator(".ao-seeds"))
    page.wait_for_function("document.querySelectorAll('.ao-seeds button').length === 20")
    won = fold.locator(".ao-won").count()
    assert f"{won} of 20 succeed: {5 * won}% (95% interval" in fold.inner_text()
    assert "“From 28” means that the run left the plateau at epoch 28" in fold.inner_text()
    assert explorer.get_by_role("button", name="stop").is_disabled()
    fill(explorer, "learning rate", "0.2")  # of what follows, not of what was trained
    seeds = fold.locator(".ao-seeds button")
    assert [int(text.split(":")[0]) for text in seeds.all_inner_texts()] == list(range(5, 25))
    assert page.evaluate("workers") == workers
    for at in (0, 13):
        seed, accuracy = seeds.nth(at).inner_text().split(":")
        assert int(seed) == 5 + at
        seeds.nth(at).click()
        now = settle(page, 6)
        assert now["weights"] == page.evaluate(DIRECT, [page.settings | {"seed": 5 + at}, 6 * EACH, []])["weights"]
        share, _, left = accuracy.partition("%")
        assert float(share) == pytest.approx(100 * now["evaluation"]["all"], abs=0.51)
        assert left.removeprefix(", from ").strip() == page.evaluate(ESCAPED, [page.settings | {"seed": 5 + at}, 6])
    fill(explorer, "train to epoch", "10000")
    pressed(explorer, "train them")
    fold.get_by_text("0 of 20 done, seed 18 is at ").wait_for()
    pressed(explorer, "stop")
    fold.get_by_text("0 of 20 done, then stopped.").wait_for()
    page.wait_for_timeout(500)
    held = fold.inner_text()
    page.wait_for_timeout(500)
    assert fold.inner_text() == held
    assert page.complaints == []


def test_weights_go_to_a_file_and_come_from_one(laboratory, tmp_path):
    page, explorer = laboratory("run:own;epoch:3", dim=3)
    now = settle(page, 3)
    unfold(explorer)
    with page.expect_download() as waiting:
        pressed(explorer, "save weights")
    assert waiting.value.suggested_filename == "model-epoch-3.json"
    path = tmp_path / "model.json"
    waiting.value.save_as(path)
    models = Models.from_json(path.read_text(encoding="utf-8"))
    assert {name: value[0].tolist() for name, value in models.weights.items()} == now["weights"]
    field = explorer.get_by_label("open weights")
    good = json.loads(path.read_text(encoding="utf-8"))

    def spoilt(**changes):
        return json.dumps(good | {"weights": good["weights"] | changes})

    wrong = {
        "{": "This file is not JSON.",
        '{"norm": "rms", "weights": {"token": [[NaN]]}}': "This file is not JSON.",
        "[]": 'its norm must be "rms" or "unit", got none',
        json.dumps(good | {"norm": "smooth"}): 'its norm must be "rms" or "unit", got "smooth"',
        '{"norm": "rms"}': "This file holds no weights.",
        '{"norm": "rms", "weights": {"token": 3}}': "The file’s token must be a list with one entry per model.",
        '{"norm": "rms", "weights": {}}': "weights.token must be a list, got undefined",
        spoilt(more=[[1]]): "weights may hold token, position",
        spoilt(query=[[1, 2]]): "This file holds no model that can be shown here: weights.",
        spoilt(token=[[[1, 2, 3], [1, 2]]]): "weights.token[1] must have 3 entries, got 2",
        spoilt(query=[[1, 2, "3"]]): "weights.query must be finite numbers, got 3",
        spoilt(query=[[1, 2, 3]]).replace("[[1, 2, 3]]", "[[1e999, 2, 3]]"): "weights.query must be finite numbers",
        spoilt(query=[[1e300, 2, 3]]): "The weights to start from must be finite numbers.",
        json.dumps(
            json.loads(spoilt(token=[[[1, 2, 3]] * 9])) | {"task": None}
        ): "The model’s p must be a whole number from 2 to 7, got “9”.",
        json.dumps(good | {"task": {"p": 2, "length": 5, "k": 6}}): "The file’s task must be { p: 2, length: 5, k: 1 … 5 }",
        json.dumps(good | {"task": {"p": 3, "length": 5, "k": 2}}): "The file’s task must be",
        json.dumps(good | {"neurons": [1, 0]}): "The file’s neurons must be 6 zeros and ones.",
        json.dumps(good | {"positions": [1, 0, 2, 1, 1]}): "The file’s positions must be 5 zeros and ones.",
        " " * 4_000_001: "This file is larger than 4 MB.",
    }
    said = status(explorer)
    for text, why in wrong.items():
        path.write_text(text, encoding="utf-8")
        field.set_input_files(path)
        explorer.get_by_role("alert").filter(has_text=why).wait_for()
        assert status(explorer) == said
    doubled = {"norm": good["norm"], "weights": {name: value * 2 for name, value in good["weights"].items()}}
    path.write_text(json.dumps(doubled))
    field.set_input_files(path)
    named = "The file holds 2 models; the first is shown. The file names no task: the label is the sum of the first k = 2"
    explorer.get_by_role("alert").filter(has_text=named).wait_for()
    reach(page, "Epoch 0:")
    again = page.evaluate(NOW)
    assert again["weights"] == {name: value[0].float().tolist() for name, value in models.weights.items()}
    assert again["evaluation"]["loss"] == pytest.approx(now["evaluation"]["loss"], rel=1e-4)
    assert page.complaints == []


def test_a_file_restores_the_task_and_what_is_switched_off(laboratory, tmp_path):
    chosen = {"seed": 12, "rate": 0.02, "decay": 0.1, "clip": 2.5, "beta1": 0.8}
    address = ";".join(f"{name}:{value}" for name, value in chosen.items())
    page, explorer = laboratory(f"run:own;epoch:3;{address}", k=3)
    settle(page, 3)
    unfold(explorer)
    shares, path = [], tmp_path / "model.json"
    for name in ("neuron 2", "neuron 5", "position 4"):
        pressed(explorer, name)
        page.wait_for_function("name => document.querySelector(`[aria-label='${name}']`).ariaPressed === 'false'", arg=name)
        shown = settle(page, 3)
        with page.expect_download() as waiting:
            pressed(explorer, "save weights")
        waiting.value.save_as(path)
        text = path.read_text(encoding="utf-8")
        assert json.loads(text)["task"] == {"p": 2, "length": 5, "k": 3}
        if name == "position 4":
            with pytest.raises(ValueError, match="must have all positions on, got a model whose position 4 is switched off"):
                Models.from_json(text)
            continue
        tokens, labels = Task(2, 5, 3).all()
        shares.append((Models.from_json(text).logits(tokens)[0].argmax(1) == labels).double().mean().item())
        assert shares[-1] == pytest.approx(shown["evaluation"]["all"])
        loss = torch.nn.functional.cross_entropy(Models.from_json(text).logits(tokens)[0], labels).item()
        whole = json.loads(text)
        del whole["neurons"]
        other = Models.from_json(json.dumps(whole)).logits(tokens)[0]
        assert abs(torch.nn.functional.cross_entropy(other, labels).item() - loss) > 1e-4  # the switches matter
    there = page.evaluate(NOW)
    pressed(explorer, "reset")
    reach(page, "Epoch 0:")
    field = fill(explorer, "prefix length k", "2")
    reach(page, "Epoch 0:")
    explorer.get_by_label("open weights").set_input_files(path)
    page.wait_for_function("() => document.querySelector('.ao-sandbox').laboratory.link.state().start.startsWith('w:')")
    reach(page, "Epoch 0:")
    again = page.evaluate(NOW)
    assert again["evaluation"]["all"] == pytest.approx(there["evaluation"]["all"])
    assert again["evaluation"]["loss"] == pytest.approx(there["evaluation"]["loss"], rel=1e-4)
    assert again["edits"] == "0 neuron 1 0;0 neuron 4 0;0 place 3 0"
    state = page.evaluate("() => document.querySelector('.ao-sandbox').laboratory.link.state()")
    assert {name: state[name] for name in chosen} == chosen
    said = explorer.locator(".ao-about").first.inner_text()
    assert said.endswith("Starts from your file, 3 changes; Adam’s state starts at zero.")
    assert page.evaluate("() => document.querySelector('.ao-sandbox').laboratory.link.state().k") == 3
    kept = page.evaluate("() => document.querySelector('.ao-sandbox').laboratory.link.state().start")
    field.fill("4")
    field.press("Enter")  # another k keeps the weights
    reach(page, "Epoch 0:")
    assert page.evaluate("() => document.querySelector('.ao-sandbox').laboratory.link.state().start") == kept
    field = explorer.get_by_role("textbox", name="neurons")
    field.fill("7")
    field.press("Enter")  # other sizes cannot, and the page says so
    explorer.get_by_role("alert").filter(has_text="The weights that were given do not fit these sizes").wait_for()
    assert page.evaluate("() => document.querySelector('.ao-sandbox').laboratory.link.state().start") == ""
    assert page.complaints == []


def focused(page):
    return page.evaluate(
        "document.activeElement.textContent || document.activeElement.type || document.activeElement.tagName"
    )


def test_train_is_among_the_first_five_stops_of_the_keyboard(laboratory):
    page, explorer = laboratory()
    explorer.locator("a, button, input").first.wait_for()
    stops = []
    for _ in range(5):
        page.keyboard.press("Tab")
        stops.append(focused(page))
    assert "▶ train" in stops


def test_it_learns_labels_of_one_s_own(laboratory):
    page, explorer = laboratory(goal=5)
    fill(explorer, "labels", "1 0  2 1 0")
    pressed(explorer, "▶ train")
    found = settle(page, 5)
    assert "labels 1 0 2 1 0" in explorer.locator(".ao-about").first.inner_text()
    settings = page.settings | {"task": {"p": 2, "length": 5, "k": 2, "rule": [1, 0, 2, 1, 0]}}
    direct = page.evaluate(
        """async ({ task, dim, norm, width, count, seed, rate, batch, eps }) => {
          const { createTrainer } = await attnopt.load("trainer");
          const rates = { learningRate: rate, batchSize: batch, eps };
          const one = createTrainer({ task, dim, norm, width, count, seed, ...rates });
          for (let epoch = 0; epoch < 5; epoch++) one.epoch();
          return { weights: one.weights(), all: one.evaluate().all };
        }""",
        settings,
    )
    assert (found["weights"], found["evaluation"]["all"]) == (direct["weights"], direct["all"])
    fill(explorer, "labels", "1 2 3")
    assert alert(explorer) == "There must be 5 weights, one per position, not 3. Nothing was changed."
    field = explorer.get_by_label("labels")
    assert field.input_value() == "1 2 3"  # to be mended
    assert "labels 1 0 2 1 0" in explorer.locator(".ao-about").first.inner_text()
    fill(explorer, "length L", "6")
    dropped = "The labels were for other sequences, so the field is empty now: the label is the sum of the first k tokens."
    assert alert(explorer) == f"{dropped} “Previous run” restores the old run."
    assert field.input_value() == ""
    pressed(explorer, "previous run")
    assert field.input_value() == "1 0 2 1 0"
    assert explorer.get_by_label("length L").input_value() == "5"
    fill(explorer, "labels", "0101 0101 " * 4)  # a table, written in groups: the last token
    assert alert(explorer) == ""
    pressed(explorer, "▶ train")
    settle(page, 5)
    tokens, label = re.search(r"Sequence (\d+ \d+):.* label (\d)", status(explorer)).groups()
    assert label == tokens[-1]
    assert explorer.get_by_role("slider", name="first k").is_visible()  # nothing is a prefix of such a rule
    assert explorer.get_by_role("slider", name="others").is_visible()
    assert "% of its attention on the first 2 tokens; " in status(explorer)
    fill(explorer, "labels", "01" * 16)  # the same
    pressed(explorer, "▶ train")
    settle(page, 5)
    shown = status(explorer)
    tokens, label = re.search(r"Sequence (\d+ \d+):.* label (\d)", shown).groups()
    assert label == tokens[-1]
    assert page.complaints == []


def test_the_run_is_repeated_in_python(laboratory, tmp_path, monkeypatch):
    page, explorer = laboratory(goal=12)
    for label, text in (("weight decay", "0.2"), ("clip gradients at (0: never)", "0.5"), ("β₁", "0.8")):
        fill(explorer, label, text)
    fill(explorer, "labels", "1 0 1 1 0")
    fill(explorer, "seed", "7")
    pressed(explorer, "▶ train")
    found = settle(page, 12)
    pressed(explorer, "this run as Python")
    code = explorer.locator(".ao-code pre").inner_text()
    said = "At first, the page and Python agree up to rounding, but training magnifies rounding errors, "
    assert f"{said}so after a few dozen epochs they can differ." in explorer.locator(".ao-code").inner_text()
    monkeypatch.chdir(tmp_path)
    space = {}
    exec(code, space)
    weights = space["training"].models.weights
    for name, value in found["weights"].items():
        assert torch.allclose(weights[name][0], torch.tensor(value, dtype=torch.float64), rtol=1e-7, atol=1e-9), name
    assert space["training"].history["loss"][-1].item() == pytest.approx(found["evaluation"]["loss"], rel=1e-7)
    assert space["training"].history["accuracy_all"][-1].item() == pytest.approx(found["evaluation"]["all"], abs=1e-12)
    fill(explorer, "seed", "8")
    assert explorer.locator(".ao-code").is_hidden()  # it was of another run
    assert page.complaints == []


def test_a_run_from_a_recorded_one_is_repeated_in_python(show):
    page, explorer = open_laboratory(show, "start:success%40200;goal:3", length=12, k=5, width=32, count=64, goal=3)
    pressed(explorer, "▶ train")
    found = settle(page, 3)
    unfold(explorer)
    pressed(explorer, "this run as Python")
    space = {}
    exec(explorer.locator(".ao-code pre").inner_text(), space)
    weights = space["training"].models.weights
    for name, value in found["weights"].items():
        assert torch.allclose(weights[name][0], torch.tensor(value, dtype=torch.float64), rtol=1e-7, atol=1e-9), name
    assert page.complaints == []


def test_curves_are_saved_as_a_table(laboratory):
    page, explorer = laboratory(goal=4)
    pressed(explorer, "▶ train")
    found = settle(page, 4)
    unfold(explorer)
    with page.expect_download() as download:
        pressed(explorer, "save curves (CSV)")
    rows = list(csv.DictReader(download.value.path().read_text(encoding="utf-8").splitlines()))
    assert [float(row["epoch"]) for row in rows] == [0, 1, 2, 3, 4]
    last = {name: float(rows[-1][name]) for name in ("loss", "train", "all", "parity", "influences 2", "gradient token")}
    evaluation = found["evaluation"]
    expected = {name: evaluation[name] for name in ("loss", "train", "all", "parity")}
    assert last == expected | {
        "influences 2": evaluation["influences"][1],
        "gradient token": evaluation["gradients"]["token"],
    }
    assert page.complaints == []


PLACED = """text => {
  const svg = document.body.appendChild(new DOMParser().parseFromString(text, "image/svg+xml").documentElement);
  const texts = [...svg.children].filter(({ tagName }) => tagName === "text"), found = texts.map((one) => {
    const { x, y, width, height } = one.getBBox();
    return { said: one.textContent, fill: one.getAttribute("fill"), box: [x, y, x + width, y + height] };
  });
  const result = { texts: found, width: svg.width.baseVal.value };
  svg.remove();
  return result;
}"""


@pytest.mark.parametrize("asked", ["run:own;epoch:3;seed:7;rate:0.02", "run:success;epoch:1000"])
def test_a_saved_picture_is_titled_and_its_captions_do_not_overlap(asked, show):
    page, explorer = open_laboratory(show, asked)
    epoch = 3 if "own" in asked else 1000
    reach(page, f"Epoch {epoch}:")
    unfold(explorer)
    page.wait_for_timeout(300)
    with page.expect_download() as download:
        explorer.get_by_role("button", name="save the picture as SVG").click()
    found = page.evaluate(PLACED, download.value.path().read_text(encoding="utf-8"))
    title = found["texts"][0]["said"]
    if "own" in asked:
        assert (
            title == "Seed 7: p = 2, L = 5, k = 2; neurons 6, training sequences 64, batch 16, learning rate 0.02; epoch 3."
        )
    else:
        assert title.startswith("Run “success”: p = 2, L = 12, k = 5; epoch 1000. Seed 189.")
    boxes = [one["box"] for one in found["texts"]]
    assert all(left >= 0 and right <= found["width"] for left, _, right, _ in boxes)
    for at, (left, top, right, bottom) in enumerate(boxes):
        for other_left, other_top, other_right, other_bottom in boxes[:at]:
            assert min(right, other_right) - max(left, other_left) < 3 or min(bottom, other_bottom) - max(top, other_top) < 4
    signs = [one["fill"] for one in found["texts"] if one["said"] in "━╍"]
    assert len(signs) == 8
    assert len(set(signs)) == 6  # the first layers have the hues of training and unseen
    assert page.complaints == []


def test_one_drag_is_one_change_while_it_trains(laboratory):
    page, explorer = laboratory(goal=400)
    unfold(explorer)
    pressed(explorer, "▶ train")
    page.wait_for_function("parseInt(document.querySelector('[role=status]').textContent.slice(6)) > 3")
    token = explorer.get_by_role("button", name="token 1:")
    token.scroll_into_view_if_needed()
    drag(page, token, 30, 20, steps=12)
    assert page.evaluate(NOW)["edits"].count(";") == 0
    while page.evaluate(NOW)["edits"].count(";") == 0:  # a token that training moves may be missed
        drag(page, token, -20, 10, steps=12)
    assert page.evaluate(NOW)["edits"].count(";") == 1
    assert page.complaints == []


SEEN = """() => {
  const [bar, panel] = [".ao-walk", ".ao-lit"].map((one) => document.querySelector(one).getBoundingClientRect());
  const seen = ({ top, bottom }) => top >= 0 && bottom <= innerHeight;
  return { both: seen(bar) && seen(panel) && bar.bottom <= panel.top, height: bar.height };
}"""  # whether the text and the panel that it is about are both in the window


@pytest.mark.parametrize("width", [1280, 390])
def test_one_sentence_is_followed_through_the_stages(width, show):
    page, explorer = open_laboratory(show, device={"width": width})
    page.set_viewport_size({"width": width, "height": 780})
    pressed(explorer, "follow one sequence")
    walk, said, heights = explorer.locator(".ao-walk"), [], set()
    for at in range(1, 9):
        said.append(walk.locator("p").inner_text())
        assert said[-1].startswith(f"{at} of 8: ")
        assert explorer.locator(".ao-lit").count() == 1
        seen = page.evaluate(SEEN)
        assert seen["both"], at
        heights.add(seen["height"])
        if at == 3 and width == 390:
            page.wait_for_timeout(4500)  # nothing goes on by itself
            assert walk.locator("p").inner_text() == said[-1]
        if at < 8:
            pressed(walk, "next")
    assert len(heights) == 1  # no text moves what stands below it
    assert "which is right" in said[-1] or "but the label is" in said[-1]
    assert walk.get_by_role("button", name="next").is_disabled()
    pressed(walk, "back")
    assert walk.locator("p").inner_text() == said[6]
    page.keyboard.press("Escape")
    assert explorer.locator(".ao-lit").count() == 0
    start = explorer.get_by_role("button", name="follow one sequence")
    assert start.evaluate("node => node === document.activeElement")
    pressed(explorer, "follow one sequence")
    pressed(walk, "end")
    assert start.is_visible()
    pressed(explorer, "follow one sequence")
    explorer.get_by_role("slider", name="prefix").press("End")  # another sequence
    assert explorer.locator(".ao-lit").count() == 0
    assert page.complaints == []


def test_many_seeds_say_how_many_are_done_and_how_long_the_others_take(laboratory):
    page, explorer = laboratory(length=3, k=1, goal=300)
    unfold(explorer)
    explorer.get_by_label("number of seeds").fill("200")
    pressed(explorer, "train them")
    said = r"(\d+) of (\d+) succeed: \d+% \(95% interval \d+% to \d+%\); \2 of 200 done, about \d+ (s|min) left\."
    page.wait_for_function(f"[...document.querySelectorAll('.ao-about')].some((one) => /{said}/.test(one.textContent))")
    pressed(explorer, "stop")
    page.wait_for_function(
        r"[...document.querySelectorAll('.ao-about')].some((one) => / of 200 done, then stopped\./.test(one.textContent))"
    )
    assert page.complaints == []


DRAWN = """name => {
  const svg = document.querySelector(`.ao-panel-${name} svg`), { left, top, width } = svg.getBoundingClientRect();
  const box = (one) => {
    const { x, y, right, bottom } = one.getBoundingClientRect();
    return [x - left, y - top, right - left, bottom - top];
  };
  const front = [...svg.querySelectorAll("g > circle:not(.ao-reach), g > polygon")];
  return { width, marks: front.map(box), labels: [...svg.querySelectorAll(".ao-tiny, .ao-small:not(.ao-halo)")].map(box) };
}"""


@pytest.mark.parametrize("asked", ["run:success;epoch:1000", "run:own;edits:0%20position%204%2030%205", "run:own;p:7"])
def test_labels_of_embeddings_do_not_overlap_and_marks_stay_in_the_frame(asked, show):
    page, explorer = open_laboratory(show, f"{asked}{'' if 'success' in asked else ';length:12;dim:2'}")
    reach(page, "Epoch")
    unfold(explorer)
    page.wait_for_timeout(400)
    for name in ("positions", "embeddings"):
        found = page.evaluate(DRAWN, name)
        assert len(found["marks"]) > 12
        for box in found["marks"]:
            assert min(box[:2]) >= 0
            assert max(box[2:]) <= found["width"]
        for at, (left, top, right, bottom) in enumerate(found["labels"]):
            for other in found["labels"][:at]:
                apart = right - 1 <= other[0] or other[2] - 1 <= left or bottom - 3 <= other[1] or other[3] - 3 <= top
                assert apart, found["labels"]
    assert page.complaints == []


def test_a_change_at_the_end_shows_in_the_curves(laboratory):
    page, explorer = laboratory("run:own;epoch:6")
    settle(page, 6)
    unfold(explorer)
    curves = "() => document.querySelector('.ao-panel-loss polyline').getAttribute('points')"
    before = page.evaluate(curves)
    pressed(explorer, "position 2")
    settle(page, 6)
    assert page.evaluate(curves) != before
    assert page.complaints == []


def test_every_sequence_can_be_chosen(show):
    page, explorer = open_laboratory(show, length=4, k=4)  # 16 sequences, all of which have a row
    prefix, caption = explorer.get_by_role("slider", name="prefix"), explorer.locator(".ao-panel-attention .ao-caption")
    reach(page, "Epoch 0:")
    assert "(all 16 sequences)" in caption.inner_text()
    assert explorer.get_by_role("slider", name="suffix").count() == 0  # there is none
    assert "% of the training set and " in status(explorer)  # which holds all sequences
    assert "of all sequences (no unseen sequences). " in status(explorer)
    assert re.search(r"m = [−\d ]*\d, and the level|No count with", status(explorer))  # and no suffix after a bar
    assert re.search(r"Sequence \d{4}: ", status(explorer))
    seen = set()
    prefix.press("Home")
    for _ in range(16):
        seen.add(re.search(r"Sequence (\d+)", status(explorer))[1])
        prefix.press("ArrowRight")
    assert len(seen) == 16
    page, explorer = open_laboratory(show, length=6, k=4)  # 64, a sample of which has rows; the sliders reach all
    reach(page, "Epoch 0:")
    seen, sliders = set(), [explorer.get_by_role("slider", name=name) for name in ("prefix", "suffix")]
    sliders[0].press("Home")
    for _ in range(16):
        sliders[1].press("Home")
        for _ in range(4):
            prefix, suffix = re.search(r"Sequence (\d+) (\d+):", status(explorer)).groups()
            assert [one.get_attribute("aria-valuetext") for one in sliders] == [prefix, suffix]
            seen.add(prefix + suffix)
            sliders[1].press("ArrowRight")
        sliders[0].press("ArrowRight")
    assert len(seen) == 64
    page, explorer = open_laboratory(show, run="success", epoch=1000)
    prefix, caption = explorer.get_by_role("slider", name="prefix"), explorer.locator(".ao-panel-attention .ao-caption")
    assert "(a sample of 56 of 4096 sequences)" in caption.inner_text()
    first = explorer.get_by_label("sequence", exact=True).input_value()
    for text in ("0101", "0101010101012", ""):
        fill(explorer, "sequence", text)
        said = f"“{text}”" if text else "nothing"
        assert alert(explorer) == f"The sequence must be 12 digits from 0 to 1; you entered {said}. It stays {first}."
        assert explorer.get_by_label("sequence", exact=True).input_value() == first
    fill(explorer, "sequence", "01011 0100010")  # which is not in the sample
    assert "Sequence 01011 0100010:" in status(explorer)
    assert "label 1, " in status(explorer)
    assert alert(explorer) == ""
    assert "(a sample of 57 of 4096 sequences)" in caption.inner_text()
    assert prefix.get_attribute("aria-valuetext") == "01011"
    unfold(explorer)
    assert_finite(explorer)
    fill(explorer, "sequence", "11111 0110011")  # which is
    assert "Sequence 11111 0110011:" in status(explorer)
    assert "(a sample of 56 of 4096 sequences)" in caption.inner_text()
    prefix.press("Home")
    assert "Sequence 00000 0110011:" in status(explorer)
    assert explorer.get_by_label("sequence", exact=True).input_value() == first
    assert prefix.get_attribute("max") == "31"  # all of them, though 14 are in the sample
    suffix = explorer.get_by_role("slider", name="suffix")
    assert suffix.get_attribute("max") == "3"  # there are 128
    prefix.press("ArrowRight")
    prefix.press("ArrowRight")
    assert "Sequence 00010 0110011:" in status(explorer)
    suffix.press("ArrowRight")
    assert "Sequence 00010 1001100:" in status(explorer)
    fill(explorer, "sequence", "010110100010")
    explorer.get_by_role("radio", name="a run of your own").check()  # whose sequences are shorter
    reach(page, "Epoch 0:")
    assert explorer.get_by_label("sequence", exact=True).input_value() == "00000"
    assert page.complaints == []


@pytest.mark.parametrize("way", ["worker", "slices"])
def test_a_run_that_diverges_stops_at_its_last_finite_state(way, show):
    page, explorer = open_laboratory(show)
    if way == "slices":
        begin_with(page, "delete globalThis.Worker;")
        page.goto("about:blank")
        page.complaints.clear()
        page.goto(page.laboratory)
        explorer = mounted(page)
    unfold(explorer)
    fill(explorer, "learning rate", "1")
    fill(explorer, "weight decay", "100")
    pressed(explorer, "▶ train")
    explorer.get_by_role("alert").filter(has_text="diverged").wait_for()
    said = r"The run diverged at epoch (\d+): its weights are no longer finite. Try a smaller learning rate."
    at = int(re.fullmatch(said, alert(explorer))[1])
    explorer.get_by_role("button", name="▶ train").wait_for()
    shown = settle(page, at - 1)
    assert all(abs(one) < 1e77 for row in shown["weights"]["position"] for one in row)
    assert_finite(explorer)
    pressed(explorer, "▶ train")  # which cannot go on
    page.wait_for_timeout(400)
    assert re.fullmatch(said, alert(explorer))
    assert explorer.get_by_role("button", name="▶ train").is_visible()
    fill(explorer, "learning rate", "0.001")
    fill(explorer, "weight decay", "0")
    assert alert(explorer) == ""
    pressed(explorer, "▶ train")
    settle(page, 20)
    page.goto("about:blank")
    page.goto(f"{page.laboratory}#sandbox=rate:1;decay:100;epoch:18")  # an address that asks for what is not reached
    explorer = mounted(page)
    explorer.get_by_role("alert").filter(has_text=f"The run diverged at epoch {at}").wait_for()
    settle(page, at - 1)
    assert_finite(explorer)
    assert page.complaints == []


def test_a_change_at_an_earlier_epoch_keeps_the_run_as_it_was(laboratory):
    page, explorer = laboratory("run:own;epoch:12")
    first = settle(page, 12)
    explorer.get_by_role("slider", name="epoch").press("Home")
    reach(page, "Epoch 0:")
    unfold(explorer)
    pressed(explorer, "neuron 3")
    kept = "The old run, to epoch 12, is kept: “previous run” restores it."
    explorer.get_by_role("alert").filter(has_text=kept).wait_for()
    assert settle(page, 0)["edits"] == "0 neuron 2 0"
    pressed(explorer, "neuron 4")  # which deletes nothing
    assert alert(explorer) == ""
    settle(page, 0)
    pressed(explorer, "previous run")
    again = settle(page, 12)
    assert (again["weights"], again["edits"]) == (first["weights"], "")
    assert explorer.get_by_role("button", name="previous run").is_disabled()
    assert page.complaints == []


def test_two_drags_of_one_token_are_two_changes(laboratory):
    page, explorer = laboratory("run:own;epoch:2")
    settle(page, 2)
    unfold(explorer)
    token = explorer.get_by_role("button", name="token 1:")
    token.scroll_into_view_if_needed()
    found = []
    for right in (25, -40):
        drag(page, token, right, 10, steps=8)
        found.append(settle(page, 2))
    assert [one["edits"].count(";") for one in found] == [0, 1]
    pressed(explorer, "undo the last")
    assert settle(page, 2)["weights"] == found[0]["weights"]
    for _ in range(3):
        token.press("ArrowUp")  # together one change
    assert settle(page, 2)["edits"].count(";") == 1
    pressed(explorer, "undo the last")
    assert settle(page, 2)["weights"] == found[0]["weights"]
    pressed(explorer, "undo all")
    settle(page, 2)
    for name in ("undo the last", "undo all"):
        assert explorer.get_by_role("button", name=name).is_disabled()
    assert page.complaints == []


def test_the_number_of_seeds_is_the_reader_s(laboratory):
    page, explorer = laboratory(goal=2, seed=2**32 - 2)
    unfold(explorer)
    field = explorer.get_by_label("number of seeds")
    for text, wrong in (("0", True), ("201", True), ("3", False)):
        field.fill(text)
        pressed(explorer, "train them")
        assert ("from 1 to 200" in alert(explorer)) == wrong
    page.wait_for_function("document.querySelectorAll('.ao-seeds button').length === 3")
    page.wait_for_function("[...document.querySelectorAll('.ao-about')].some(p => / of 3 succeed/.test(p.textContent))")
    seeds = [text.split(":")[0] for text in explorer.locator(".ao-seeds button").all_inner_texts()]
    assert seeds == ["4294967294", "4294967295", "0"]
    assert page.complaints == []
