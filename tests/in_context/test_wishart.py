import itertools
import math

import numpy as np
import pytest
import torch

from attnopt.in_context import (
    gram_quadrature,
    spectral_moments,
    wishart_quadrature,
    wishart_recurrence,
    wishart_trace_moment,
)

SIZES = [(1, 1), (1, 4), (2, 1), (2, 3), (3, 2), (3, 3), (5, 20), (6, 2)]


def multiply(p, q):
    """Product of polynomials given as {exponents: coefficient}."""
    result = {}
    for a, x in p.items():
        for b, y in q.items():
            key = tuple(i + j for i, j in zip(a, b, strict=True))
            result[key] = result.get(key, 0) + x * y
    return result


def add(polynomials):
    """Sum of polynomials given as {exponents: coefficient}."""
    result = {}
    for p in polynomials:
        for a, x in p.items():
            result[a] = result.get(a, 0) + x
    return result


def brute_force(partition, dim, dof):
    """E[Π tr S^r] by expanding the polynomial in the entries of X and integrating monomial by monomial."""
    count = dim * dof

    def unit(i, a):
        return {tuple(int(index == i * dof + a) for index in range(count)): 1}

    S = [[add(multiply(unit(i, a), unit(j, a)) for a in range(dof)) for j in range(dim)] for i in range(dim)]
    constant = tuple([0] * count)
    value = {constant: 1}
    for r in partition:
        power = [[{constant: int(i == j)} for j in range(dim)] for i in range(dim)]
        for _ in range(r):
            power = [[add(multiply(power[i][m], S[m][j]) for m in range(dim)) for j in range(dim)] for i in range(dim)]
        value = multiply(value, add(power[i][i] for i in range(dim)))
    even = (c * math.prod(math.prod(range(1, p, 2)) for p in a) for a, c in value.items() if all(p % 2 == 0 for p in a))
    return sum(even)


@pytest.mark.evidence("ahn-theorem-4")
@pytest.mark.parametrize(("dim", "dof"), [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("partition", [(1,), (2,), (3,), (4,), (1, 1), (1, 2), (2, 2), (1, 1, 2), (0, 3), ()])
def test_recursion_agrees_with_integration_monomial_by_monomial(partition, dim, dof):
    assert wishart_trace_moment(partition, dim, dof) == brute_force(partition, dim, dof)


@pytest.mark.parametrize(("dim", "dof"), SIZES)
@pytest.mark.parametrize("n_nodes", [1, 2, 5])
def test_quadrature_integrates_what_it_promises(dim, dof, n_nodes):
    nodes, weights = wishart_quadrature(dim, dof, n_nodes)
    assert (np.diff(nodes) > 0).all()
    assert nodes[0] > -1e-12
    assert (weights > 0).all()
    moments = spectral_moments(dim, dof, 2 * n_nodes + 1)
    for degree in range(2 * n_nodes):
        assert weights @ nodes**degree == pytest.approx(moments[degree] / dof**degree, rel=1e-9)
    assert weights @ nodes ** (2 * n_nodes) < moments[-1] / dof ** (2 * n_nodes) * (1 - 1e-9)  # and no more
    with pytest.raises(ValueError, match="read-only"):
        nodes[0] = 0


@pytest.mark.parametrize(("dim", "dof"), [(2, 1), (2, 2), (2, 7), (3, 1), (3, 2), (3, 5)])
def test_gram_rule_has_the_moments_of_entries(dim, dof):
    G, weights = gram_quadrature(dim, dof, 4)
    assert weights.sum() == pytest.approx(1)
    assert (weights > 0).all()
    assert np.linalg.eigvalsh(G).min() > -1e-9
    delta = np.eye(dim)
    np.testing.assert_allclose(np.einsum("q,qij->ij", weights, G), delta, atol=1e-12)
    second = np.einsum("q,qij,qkl->ijkl", weights, G, G)
    for i, j, k, m in itertools.product(range(dim), repeat=4):  # Isserlis
        expected = delta[i, j] * delta[k, m] + (delta[i, k] * delta[j, m] + delta[i, m] * delta[j, k]) / dof
        assert second[i, j, k, m] == pytest.approx(expected, abs=1e-12)
    traces = [np.trace(np.linalg.matrix_power(G, m), axis1=1, axis2=2) for m in range(5)]
    for partition in ((3,), (4,), (1, 2), (1, 3), (2, 2), (1, 1, 2)):
        value = weights @ math.prod(traces[m] for m in partition)
        expected = float(wishart_trace_moment(partition, dim, dof)) / dof ** sum(partition)
        assert value == pytest.approx(expected, rel=1e-10)


def test_gram_rule_has_as_few_matrices_as_the_degree_allows():
    assert [len(gram_quadrature(dim, 5, 6)[1]) for dim in (1, 2, 3)] == [4, 112, 21_952]


@pytest.mark.parametrize("function", [spectral_moments, wishart_recurrence, wishart_quadrature])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_cached_result_lets_no_float_pass(function, position):
    sizes = [2, 3, 4]
    function(*sizes)
    sizes[position] = float(sizes[position])
    with pytest.raises(TypeError, match="must be an integer"):
        function(*sizes)


@pytest.mark.parametrize("n_context", [340, 1000, 10**6])
def test_the_quadrature_of_many_examples_is_exact(n_context):
    matrices, weights = (torch.as_tensor(part) for part in gram_quadrature(2, n_context, 4))
    assert weights.sum().item() == pytest.approx(1)
    moments = [
        (weights * torch.linalg.matrix_power(matrices, m).diagonal(dim1=1, dim2=2).sum(1)).sum().item() for m in (1, 2)
    ]
    assert moments[0] == pytest.approx(2)
    assert moments[1] == pytest.approx(2 + 6 / n_context, rel=1e-9)  # (d + (d² + d)/n) for d = 2
