"""Training ensembles: the written-out gradients, Adam, independence of the company, exact resumption."""

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from attnopt.clustering import forward, init_model, modular_addition
from attnopt.clustering.training import initial_models, train, training_data
from attnopt.clustering.training.step import Layout, loss_and_gradients, marks


@pytest.mark.parametrize("norm", ["unit", "rms", "smooth"])
@pytest.mark.parametrize(("dim", "p", "vocabulary"), [(1, 2, 2), (2, 2, 2), (3, 3, 4), (5, 2, 3)])
def test_gradients_are_autograds(norm, dim, p, vocabulary):
    generator = torch.Generator().manual_seed(dim)
    params = init_model(4, vocabulary, 6, dim, 7, generator=generator, biases=True)
    tokens, targets = modular_addition(p, 6, 3, 4 * 9, generator)
    tokens, targets = tokens.unflatten(0, (4, 9)), targets.unflatten(0, (4, 9))
    layout = Layout.of(params)
    rows = layout.rows(params)
    gradient = torch.full_like(rows, 9.0)
    truth = one_hot(targets, vocabulary).mT.to(rows.dtype)
    losses = loss_and_gradients(
        layout.views(rows), layout.views(gradient), marks(tokens, vocabulary, rows.dtype), truth, norm
    )
    leaves = {name: value.requires_grad_() for name, value in params.items()}
    logits = forward(leaves, tokens, norm=norm)
    expected = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").unflatten(0, (4, 9)).mean(1)
    torch.testing.assert_close(losses, expected)
    expected.sum().backward()
    for name, value in layout.views(gradient).items():
        torch.testing.assert_close(value, leaves[name].grad, msg=name)


def plain_training(seed, epochs, batch_size, **adam):
    """One model, one loop, torch's own Adam and autograd."""
    from attnopt.clustering.training.group import ORDER_SEED

    params = {name: value.requires_grad_() for name, value in initial_models([seed], dtype=torch.float64).items()}
    tokens, targets = training_data([seed], 2, 12, 5, 256)
    optimiser = torch.optim.AdamW(params.values(), lr=3e-3, **({"weight_decay": 0.0} | adam))
    for epoch in range(epochs):
        order = torch.randperm(256, generator=torch.Generator().manual_seed(ORDER_SEED + epoch))
        for batch in order.split(batch_size):
            optimiser.zero_grad()
            cross_entropy(forward(params, tokens[:, batch], norm="rms")[0], targets[0, batch]).backward()
            optimiser.step()
    return {name: value.detach() for name, value in params.items()}


@pytest.mark.parametrize(("batch_size", "decay"), [(32, 0.0), (48, 0.0), (256, 0.1)])
def test_training_is_that_of_torchs_adam(batch_size, decay):
    training = train(
        [3, 5], n_train=256, epochs=3, batch_size=batch_size, weight_decay=decay, dtype=torch.float64, evaluate_every=3
    )
    expected = plain_training(5, 3, batch_size, weight_decay=decay)
    for name, value in expected.items():
        torch.testing.assert_close(training.params[name][1:], value, rtol=1e-9, atol=1e-11)


def test_a_model_does_not_notice_its_company():
    grid = {"batch_size": [32, 64, 32, 16], "learning_rate": [3e-3, 1e-3, 1e-2, 3e-3], "width": [32, 32, 8, 32]}
    common = {"epochs": 2, "snapshots": (1,), "n_train": 512}
    together = train([1, 2, 3, 4], **grid, **common)
    for at in range(4):
        alone = train([at + 1], **{name: value[at] for name, value in grid.items()}, **common)
        width = grid["width"][at]
        for name, value in alone.params.items():
            theirs = together.params[name][at]
            axis = {"receptors": 0, "receptor_biases": 0, "assemblers": 1}.get(name)
            if axis is not None:
                assert not theirs.narrow(axis, width, 32 - width).any()
                theirs = theirs.narrow(axis, 0, width)
            assert torch.equal(theirs, value[0]), name
        for name in set(alone.history) - {"epoch"}:
            assert torch.equal(together.history[name][:, at], alone.history[name][:, 0]), name


def test_an_interrupted_training_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    from attnopt.clustering.training import group

    settings = {"n_train": 256, "snapshots": (0, 3, 5), "evaluate_every": 2, "batch_size": [32, 64], "clip": 0.5}
    whole = train([1, 2], epochs=5, **settings)
    passes = []

    def until_four(self):
        passes.append(1)
        if len(passes) == 4:
            raise KeyboardInterrupt
        original(self)

    original = group.Group.pass_through
    monkeypatch.setattr(group.Group, "pass_through", until_four)
    with pytest.raises(KeyboardInterrupt):
        train([1, 2], epochs=5, checkpoint=tmp_path / "run", checkpoint_every=1, **settings)
    monkeypatch.setattr(group.Group, "pass_through", original)
    resumed = train([1, 2], epochs=5, checkpoint=tmp_path / "run", checkpoint_every=1, **settings)
    for name, value in whole.history.items():
        assert torch.equal(value, resumed.history[name]), name
    for name, value in whole.params.items():
        assert torch.equal(value, resumed.params[name]), name
        assert all(torch.equal(whole.snapshots[epoch][name], resumed.snapshots[epoch][name]) for epoch in (0, 3, 5))
    with pytest.raises(ValueError, match="other settings"):
        train([1, 2], epochs=5, checkpoint=tmp_path / "run", learning_rate=1e-2, **settings)
