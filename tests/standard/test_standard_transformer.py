"""The transformer of Part V against its definition, and what may be exchanged in it."""

import math

import pytest
import torch

from attnopt.standard import Transformer, as_tokens, train, transformer


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Transformer(3, 2, 7, width=8, layers=2, heads=2).double()


def by_hand(model, tokens):
    """The outputs for one sequence, from the weights alone, head by head and token by token."""
    w = {name: value.detach() for name, value in model.named_parameters()}

    def normal(x, name):
        z = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        return z * w[f"{name}.weight"] + w[f"{name}.bias"]

    x = tokens @ w["embedding.weight"].T + w["embedding.bias"] + w["position"][: len(tokens)]
    for layer in range(2):
        name = f"parts.{2 * layer}"
        q, k, v = (normal(x, f"{name}.0") @ w[f"{name}.1.qkv.weight"].T + w[f"{name}.1.qkv.bias"]).split(8, -1)
        heads = []
        for h in (slice(0, 4), slice(4, 8)):
            rows = []
            for t in range(len(x)):
                seen = slice(0, t + 1)
                shares = (k[seen, h] @ q[t, h] / 2).exp()
                rows.append(shares / shares.sum() @ v[seen, h])
            heads.append(torch.stack(rows))
        x = x + torch.cat(heads, -1) @ w[f"{name}.1.out.weight"].T + w[f"{name}.1.out.bias"]
        name = f"parts.{2 * layer + 1}"
        u = normal(x, f"{name}.0") @ w[f"{name}.1.weight"].T + w[f"{name}.1.bias"]
        u = u * (1 + torch.erf(u / math.sqrt(2))) / 2
        x = x + u @ w[f"{name}.3.weight"].T + w[f"{name}.3.bias"]
    return normal(x, "readout.0") @ w["readout.1.weight"].T + w["readout.1.bias"]


def test_the_forward_pass_is_the_definition(model):
    tokens = torch.randn(2, 6, 3, dtype=torch.float64)
    torch.testing.assert_close(model(tokens)[1], by_hand(model, tokens[1]))
    torch.testing.assert_close(model.last(tokens), model(tokens)[:, -1])


@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_the_last_states_are_the_last_of_all_states(model, shape, monkeypatch):
    monkeypatch.setattr(transformer, "BATCH", 2)
    tokens = torch.randn(*shape, 6, 3, dtype=torch.float64)
    expected = torch.stack([state[..., -1, :] for state in model.states(tokens)])
    torch.testing.assert_close(model.last_states(tokens), expected)
    with pytest.raises(ValueError, match=r"^tokens must have shape"):
        model.last_states(tokens[..., :2])


def test_attention_weights_mix_the_values(model):
    x = torch.randn(5, 8, dtype=torch.float64)
    attention = model.parts[0][1]
    weights, values = attention.weights(x), attention.split(x)[2]
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5, dtype=torch.float64))
    torch.testing.assert_close(attention.out((weights @ values).transpose(-3, -2).flatten(-2)), attention(x))


def test_a_changed_state_is_what_later_parts_see(model):
    one, other = torch.randn(2, 4, 3, dtype=torch.float64)
    donor = model.states(other)
    for after in range(5):
        states = model.states(one, lambda i, state, after=after: donor[i] if i == after else state)
        torch.testing.assert_close(model.read(states[-1]), model(other))
        torch.testing.assert_close(states[:after], model.states(one)[:after])
    torch.testing.assert_close(model.read(model.states(one, lambda i, state: state)[-1]), model(one))


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match="width must be a multiple of heads, 4, got 6"):
        Transformer(3, 1, 5, width=6)
    with pytest.raises(ValueError, match="layers must be at least 1, got 0"):
        Transformer(3, 1, 5, layers=0)
    with pytest.raises(ValueError, match=r"tokens must have shape \(\.\.\., at most 5, 3\), got \(6, 3\)"):
        Transformer(3, 1, 5)(torch.zeros(6, 3))
    model = Transformer(3, 1, 5)
    for name, value in {"steps": 0, "rate": -1.0, "warmup": -1}.items():
        with pytest.raises(ValueError, match=name):
            train(model, lambda: model(torch.zeros(1, 3)).sum(), **{"steps": 1} | {name: value})


def test_training_follows_adam_on_its_schedule():
    """The first steps of Adam are of the size of the rate, which tells the schedule."""
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    seen = []

    def loss():
        seen.append(model.weight.item())
        return model.weight.sum()

    train(model, loss, 4, rate=0.1, warmup=2)
    rates = [0.05, 0.1 * (1 + math.cos(math.pi / 4)) / 2, 0.05, 0.1 * (1 + math.cos(3 * math.pi / 4)) / 2]
    assert [*seen, model.weight.item()] == pytest.approx([1 - sum(rates[:count]) for count in range(5)], abs=1e-6)


def test_it_learns_regressions_of_one_dimension():
    torch.manual_seed(1)
    model, generator = Transformer(2, 1, 9, width=16, layers=2, heads=2), torch.Generator().manual_seed(0)

    def loss(count=64):
        points, slopes = torch.randn(count, 5, 1, generator=generator), torch.randn(count, 1, generator=generator)
        labels = points[..., 0] * slopes
        return (model(as_tokens(points, labels))[:, ::2, 0] - labels)[:, 1:].square().mean()

    before = loss(2000).item()
    train(model, loss, 600, rate=3e-3, warmup=50)
    assert loss(2000).item() < 0.3 * before
