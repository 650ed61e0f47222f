from fractions import Fraction

import pytest
import torch
from helpers import normal

from attnopt.in_context import in_context_loss, linear_transformer, prompt_losses, sample_grams, sample_prompts

SIZES = [(1, 1, 1), (2, 1, 3), (3, 7, 2), (5, 3, 4)]  # d, n, k


def sparse(A, B=None):
    """P and Q of the form (13), shape (k, d + 1, d + 1)."""
    k, d, _ = A.shape
    P, Q = A.new_zeros(2, k, d + 1, d + 1)
    P[:, d, d] = 1
    Q[:, :d, :d] = A
    if B is not None:
        P[:, :d, :d] = B
    return P, Q


def in_columns(prompt, P, Q):
    """The paper's (4) word by word for one prompt: tokens in columns, an explicit mask."""
    Z, n = prompt.mT, prompt.shape[0] - 1
    M = torch.diag(torch.cat([torch.ones(n), torch.zeros(1)])).to(prompt)
    for p, q in zip(P, Q, strict=True):
        Z = Z + p @ Z @ M @ (Z.mT @ q @ Z) / n
    return Z.mT


def problem(generator, d, n, k, batch=6):
    """Prompts with their targets, and blocks A and B."""
    prompts, targets = sample_prompts(batch, torch.eye(d, dtype=torch.float64), n, generator)
    return prompts, targets, normal(generator, k, d, d) / (2 * d), normal(generator, k, d, d) / (2 * d)


@pytest.mark.evidence("ahn-lemma-10")
@pytest.mark.parametrize(("d", "n", "k"), SIZES)
def test_the_querys_label_is_passed_on_and_read_by_nobody(d, n, k, generator):
    prompts, _, A, B = problem(generator, d, n, k)
    moved = prompts.clone()
    moved[:, -1, -1] += 3.7
    change = torch.stack([in_columns(b, *sparse(A, B)) - in_columns(a, *sparse(A, B)) for a, b in zip(prompts, moved)])  # noqa: B905
    expected = torch.zeros_like(change)
    expected[:, -1, -1] = 3.7
    torch.testing.assert_close(change, expected, rtol=0, atol=1e-9)
    change = linear_transformer(moved, *sparse(A, B))[-1] - linear_transformer(prompts, *sparse(A, B))[-1]
    torch.testing.assert_close(change, expected, rtol=0, atol=1e-9)


@pytest.mark.evidence("ahn-lemma-9")
@pytest.mark.parametrize(("d", "n", "k"), SIZES)
def test_true_label_turns_prediction_into_error(d, n, k, generator):
    prompts, targets, A, B = problem(generator, d, n, k)
    P, Q = sparse(A, B)
    with_label = prompts.clone()
    with_label[:, -1, -1] = targets
    errors = linear_transformer(with_label, P, Q)[-1][:, -1, -1]
    torch.testing.assert_close(errors.square().mean(), in_context_loss(prompts, targets, P, Q), rtol=1e-9, atol=1e-9)


@pytest.mark.evidence("ahn-lemma-2")
@pytest.mark.parametrize(("d", "n", "k"), SIZES)
def test_plain_layers_are_gradient_steps_with_the_transposed_weights(d, n, k, generator):
    prompts, _, A, _ = problem(generator, d, n, k, batch=1)
    states = linear_transformer(prompts, *sparse(A))[:, 0]
    x, y, query = prompts[0, :-1, :-1], prompts[0, :-1, -1], prompts[0, -1, :-1]
    w = torch.zeros(d, dtype=torch.float64)
    for i in range(k + 1):
        torch.testing.assert_close(-states[i, -1, -1], w @ query, rtol=1e-9, atol=1e-9)
        if i < k:
            w.requires_grad_()
            risk = (x @ w - y).square().sum() / (2 * n)
            (gradient,) = torch.autograd.grad(risk, w)
            w = (w + A[i].mT @ gradient).detach()
    if d > 1:  # with A instead of its transpose it is something else
        wrong = torch.zeros(d, dtype=torch.float64)
        for layer in A:
            wrong = wrong + layer @ (x.mT @ (x @ wrong - y)) / n
        assert (wrong - w).norm() > 1e-3


@pytest.mark.evidence("ahn-lemma-2")
def test_two_layers_by_hand_in_fractions():
    # d = n = 2, w⋆ = (1, 2), examples (1, 1) with label 3 and (1, -1) with label -1, query (2, 1): H = I
    A = [
        [[Fraction(-1, 2), Fraction(1)], [Fraction(0), Fraction(-1, 4)]],
        [[Fraction(-1), Fraction(0)], [Fraction(1, 3), Fraction(-1)]],
    ]
    w = [Fraction(0), Fraction(0)]
    for layer in A:
        gap = [w[0] - 1, w[1] - 2]  # H (w - w⋆)
        w = [w[f] + sum(layer[g][f] * gap[g] for g in range(2)) for f in range(2)]
    answer = 2 * w[0] + w[1]
    assert w == [Fraction(1, 6), Fraction(2)]
    prompt = torch.tensor([[[1.0, 1.0, 3.0], [1.0, -1.0, -1.0], [2.0, 1.0, 0.0]]], dtype=torch.float64)
    weights = torch.tensor([[[float(x) for x in row] for row in layer] for layer in A], dtype=torch.float64)
    assert -linear_transformer(prompt, *sparse(weights))[-1, 0, -1, -1].item() == pytest.approx(float(answer), rel=1e-13)


def whitened(generator, d):
    """Σ, Σ^(1/2) and its inverse."""
    root = normal(generator, d, d)
    values, vectors = torch.linalg.eigh(root @ root.mT + torch.eye(d, dtype=torch.float64) / 2)
    half = (vectors * values.sqrt()) @ vectors.mT
    return half @ half, half, torch.linalg.inv(half)


@pytest.mark.evidence("ahn-lemma-9")
@pytest.mark.parametrize(("d", "n", "k"), SIZES)
def test_error_of_each_prompt_is_a_product_of_small_matrices(d, n, k, generator):
    covariance, half, inverse = whitened(generator, d)
    prompts, _ = sample_prompts(8, covariance, n, generator)
    weights = normal(generator, 8, d, 1)
    prompts[..., -1:] = prompts[..., :-1] @ inverse @ weights  # labels of w⋆ = Σ^(-1/2) w̄
    targets = prompts[:, -1, -1].clone()
    prompts[:, -1, -1] = 0
    A, B = normal(generator, k, d, d) / 4, normal(generator, k, d, d) / 4
    errors = linear_transformer(prompts, *sparse(A, B))[-1][:, -1, -1] + targets
    bar = prompts[..., :-1] @ inverse
    for index in range(8):
        G = bar[index, :-1].mT @ bar[index, :-1] / n
        T = K = torch.eye(d, dtype=torch.float64)
        for A_i, B_i in zip(half @ A @ half, inverse @ B @ half, strict=True):
            T, K = T @ (torch.eye(d) + G @ K.mT @ A_i @ K), (torch.eye(d) + B_i @ K @ G @ K.mT @ A_i) @ K
        product = (weights[index].mT @ T @ bar[index, -1:].mT)[0, 0]
        torch.testing.assert_close(errors[index], product, rtol=1e-9, atol=1e-9)
        loss = prompt_losses(G, half @ A @ half, inverse @ B @ half)
        torch.testing.assert_close(loss, T.square().sum(), rtol=1e-9, atol=1e-9)


@pytest.mark.evidence("ahn-distorted-view")
def test_whitening_removes_the_covariance(generator):
    grams = sample_grams(5, 3, 4, generator)
    A = normal(generator, 2, 3, 3) / 3
    base = prompt_losses(grams, A)
    for _ in range(3):
        _, half, inverse = whitened(generator, 3)
        unwhitened = half @ grams @ half, inverse @ A @ inverse  # H and the weights that act on it
        errors = torch.eye(3, dtype=torch.float64)
        for layer in unwhitened[1]:
            errors = errors @ (torch.eye(3) + unwhitened[0] @ layer)
        torch.testing.assert_close((inverse @ errors @ half).square().sum((-2, -1)), base, rtol=1e-8, atol=1e-9)


@pytest.mark.evidence("ahn-distorted-view")
@pytest.mark.parametrize("n", [1, 2, 5, 50])
def test_hessian_of_the_prompts_loss_and_the_newton_layer(n, generator):
    x, target = normal(generator, n, 3), normal(generator, 3)

    def risk(w):
        return (x @ (w - target)).square().sum() / (2 * n)

    H = torch.autograd.functional.hessian(risk, normal(generator, 3))
    torch.testing.assert_close(H, x.mT @ x / n, rtol=1e-12, atol=1e-12)
    if n >= 3:
        prompt = torch.cat([x, (x @ target)[:, None]], 1)
        prompt = torch.cat([prompt, torch.tensor([[0.3, -1.0, 2.0, 0.0]], dtype=torch.float64)])
        answers = [linear_transformer(prompt, *sparse(-torch.linalg.inv(c * H)[None]))[-1, -1, -1] for c in (1, 0.5)]
        truth = prompt[-1, :3] @ target
        torch.testing.assert_close(-answers[0], truth, rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(-answers[1], 2 * truth, rtol=1e-7, atol=1e-8)
