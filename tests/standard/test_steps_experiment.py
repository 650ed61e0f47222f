"""The script on transformers in a prompt: what it measures, on readings and on a "model" whose workings are known."""

import json
from pathlib import Path

import pytest
import steps_in_prompt as script
import torch

from attnbook.explorers import AnswerFormsExplorer, answer_forms
from attnopt.standard import Transformer, krylov_answers, load_regressor, ridge_answers


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(script, "FIT", 300)
    monkeypatch.setattr(script, "TEST", 300)
    points, labels, answers = script.prompts("base", 600, torch.Generator().manual_seed(3))
    return points.double(), labels.double(), answers.double()


class Halves:
    """Its two parts add half of the least squares answer each to the last token, from the tokens that the states carry."""

    def __init__(self):
        self.parts = (self.half, self.half)

    def embed(self, tokens):
        return torch.cat([torch.zeros_like(tokens[..., :1]), tokens], -1)

    def half(self, state):
        points, labels = state[:, ::2, 1:-1], state[:, 1::2, -1]
        more = torch.zeros_like(state)
        more[:, -1, 0] = ridge_answers(points[:, :-1], labels, points[:, -1], 0.0) / 2
        return more

    states = Transformer.states

    def read(self, state):
        return state[..., :1]


def test_exchanges_tell_what_is_added(small):
    rows = script.exchanges(Halves(), *small)
    for after, query in enumerate((0.0, 0.5, 1.0)):
        assert rows[after]["query"]["slope"].item() == pytest.approx(query, abs=1e-6)
        assert rows[after]["examples"]["slope"].item() == pytest.approx(1 - query, abs=1e-6)
    assert rows[1]["reading"]["slope"].item() == pytest.approx(0.5, abs=1e-3)  # the reading is already the answer
    assert rows[1]["reading"]["left"].item() < 1e-4


def test_a_spared_part_costs_what_it_adds(small):
    points, labels, answers = small
    noisy = answers + 0.1 * torch.randn(answers.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    factors = script.spared(Halves(), script.as_tokens(points, labels), noisy)
    before = (answers - noisy)[:, -1].square().mean()
    half = (answers[:, -1] + answers[:, -1].mean()) / 2
    after = (half - noisy[:, -1]).square().mean()
    assert factors == pytest.approx([(after / before).item()] * 2, rel=1e-6)


def test_a_reading_is_recognized(small):
    points, labels, _ = small
    prompt = points[:, :8], labels[:, :8], points[:, 8]
    families = script.algorithms(*prompt, torch.ones(4, dtype=torch.float64))
    found = script.matches(3 * ridge_answers(*prompt, 1.0)[300:] + 1, families)
    assert found["ridge"]["member"] == "1"
    assert found["ridge"]["share"].item() > 1 - 1e-6
    assert found["newton"]["share"].item() < 0.9999
    K = [families["plain"][str(j)] for j in range(3)]
    rate = 0.5
    assert torch.allclose(families["descent"]["3 at 0.5"], rate * (3 * K[0] - 3 * rate * K[1] + rate**2 * K[2]))
    found = script.matches((K[0] - 0.3 * K[1])[300:], families)
    assert found["plain"][0].item() < 0.99
    assert found["plain"][1].item() > 1 - 1e-6


def test_what_is_left_over_is_new(small):
    points, labels, answers = small
    known = torch.stack([points[:, 0, 0], labels[:, 0]], -1)
    rest = script.left_over(answers[:, 3], known)
    assert (known.mT @ rest).abs().max().item() < 1e-9
    assert abs(rest.mean().item()) < 1e-12


def test_prompts_are_as_the_script_says():
    points, labels, answers = script.prompts("skewed", 40_000, torch.Generator().manual_seed(1))
    assert points[:, 0].square().mean(0).tolist() == pytest.approx([4, 2, 0.5, 0.25], rel=0.05)
    assert answers.square().mean().item() == pytest.approx(4, rel=0.03)  # d, whatever Σ is
    assert torch.equal(labels, answers)
    points, labels, answers = script.prompts("noise", 40_000, torch.Generator().manual_seed(1))
    assert (labels - answers).square().mean().item() == pytest.approx(1, rel=0.02)


def test_four_seeds_decide():
    assert script.decided([1, 1, 1, 1, 0], lambda x: x > 0, lambda x: x < 0) == "yes"
    assert script.decided([1, 1, 1, 0, 0], lambda x: x > 0, lambda x: x <= 0) == "mixed"
    assert script.decided([0, 0, 1, 0, 0], lambda x: x > 0, lambda x: x <= 0) == "no"


STORED = json.loads((Path(__file__).parents[2] / "results/steps_in_prompt.json").read_text(encoding="utf-8"))


def test_any_steps_from_zero_combine_krylov_answers():
    """Iterates that combine all earlier ones and their gradients, with random coefficients that all prompts share."""
    generator = torch.Generator().manual_seed(2)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    points, labels, query = normal(50, 9, 4), normal(50, 9), normal(50, 4)
    iterates, gradients = [torch.zeros(50, 4).double()], []
    for _ in range(3):
        residual = (points @ iterates[-1][..., None])[..., 0] - labels
        gradients.append((points.mT @ residual[..., None])[..., 0] / 9)
        earlier = torch.stack(iterates + gradients)
        iterates.append((normal(len(earlier), 1, 1) * earlier).sum(0))
    answers = (iterates[-1] * query).sum(-1)
    for count, exact in ((2, False), (3, True)):
        known = krylov_answers(points, labels, query, count)
        left = answers - known @ torch.linalg.lstsq(known, answers[:, None]).solution[:, 0]
        assert (left.abs().max() < 1e-9 * answers.abs().max()) == exact


@pytest.mark.evidence("book-real-steps")
def test_the_stored_verdicts_follow_from_the_stored_findings():
    assert script.verdicts() == STORED["verdicts"]


@pytest.mark.evidence("book-real-steps")
@pytest.mark.parametrize("seed", range(5))
def test_stored_models_do_what_was_stored(seed):
    """On fresh prompts and with another probe: the errors after layers 1, 2, 3 and of the output."""
    model, generator = load_regressor("base", seed), torch.Generator().manual_seed(99)
    points, labels, answers = script.prompts("base", 4000, generator)
    truth, ones = answers[:, -1].double(), torch.ones(4000, 1).double()
    states = model.last_states(script.as_tokens(points, labels))
    rows = STORED["base"]["seeds"][seed]["states 16"]
    for part, atol in ((2, 0.04), (4, 0.02), (6, 0.006)):
        state = torch.cat([states[part].double(), ones], 1)
        probe = torch.linalg.lstsq(state[:2000], truth[:2000, None]).solution[:, 0]
        left = (truth - state @ probe)[2000:].square().mean() / truth[2000:].var()
        assert 1 - left.item() == pytest.approx(rows[part]["answer"], abs=atol)
    error = (model.read(states[-1])[:, 0].double() - truth).square().mean() / 4
    assert error.item() == pytest.approx(1 - rows[7]["answer"], abs=0.004)


def test_an_unknown_model_is_refused():
    with pytest.raises(ValueError, match="setting must be"):
        load_regressor("bases", 0)
    with pytest.raises(ValueError, match="seed must be one of 0 … 4, got 5"):
        load_regressor("base", 5)
    with pytest.raises(TypeError, match="seed must be an integer"):
        load_regressor("base", 1.5)


def test_the_explorer_shows_the_stored_model():
    """Its own forward pass beside that of the package, on its first state."""
    explorer = AnswerFormsExplorer()
    model, probes = answer_forms.recorded()
    points = torch.tensor(explorer.points, dtype=torch.float64)
    covariates = torch.cat([points[:, :1], torch.tensor([[explorer.query]], dtype=torch.float64)])
    labels = torch.cat([points[:, 1], torch.zeros(1).double()])
    states = model.states(script.as_tokens(covariates, labels))
    assert model.read(states[-1])[-1, 0].item() == pytest.approx(explorer.compute()["output"], abs=1e-12)
    assert (states[4][-1] @ probes[4, :-1] + probes[4, -1]).item() == pytest.approx(
        explorer.compute()["readings"][4], abs=1e-9
    )
    least = torch.linalg.lstsq(points[:, :1], points[:, 1:]).solution.item()
    assert AnswerFormsExplorer(steps=20).compute()["descent"] == pytest.approx(least, abs=1e-6)
