"""Small SymPy helpers for derivations: matrices of symbols, softmax and log-sum-exp with an explicit axis."""

from collections.abc import Iterable

import sympy as sp

from attnopt.checks import Axis, axis_dim


def symbols_matrix(name: str, rows: int, columns: int) -> sp.Matrix:
    """A matrix of real symbols ``name_11``, ``name_12``, … of the given shape, at most nine rows and columns."""
    return sp.Matrix(rows, columns, lambda i, j: sp.Symbol(f"{name}_{i + 1}{j + 1}", real=True))


def symmetric_matrix(name: str, size: int) -> sp.Matrix:
    """A symmetric matrix of real symbols, one symbol for each pair of indices."""
    return sp.Matrix(size, size, lambda i, j: sp.Symbol(f"{name}_{min(i, j) + 1}{max(i, j) + 1}", real=True))


def logsumexp_matrix(logits: sp.Matrix, axis: Axis) -> sp.Matrix:
    """Log-sum-exp of each column ("sequence"; the result is a row) or each row ("class"; the result is a column)."""
    exponentials = logits.applyfunc(sp.exp)
    if axis_dim(axis) == -2:
        return sp.Matrix(1, logits.cols, lambda _, j: sp.log(sum(exponentials[:, j])))
    return sp.Matrix(logits.rows, 1, lambda i, _: sp.log(sum(exponentials[i, :])))


def softmax_matrix(logits: sp.Matrix, axis: Axis) -> sp.Matrix:
    """Softmax of each column ("sequence") or each row ("class")."""
    exponentials = logits.applyfunc(sp.exp)
    if axis_dim(axis) == -2:
        return sp.Matrix(*logits.shape, lambda i, j: exponentials[i, j] / sum(exponentials[:, j]))
    return sp.Matrix(*logits.shape, lambda i, j: exponentials[i, j] / sum(exponentials[i, :]))


def gradient(value: sp.Expr, variables: sp.Matrix) -> sp.Matrix:
    """Derivatives of a scalar with respect to each entry of a matrix of symbols, in the matrix's shape."""
    return variables.applyfunc(lambda variable: sp.diff(value, variable))


def is_zero(expression: sp.Expr | sp.Matrix) -> bool:
    """Whether an expression, or every entry of a matrix, is identically zero, as far as SymPy can tell.

    The numerator over a common denominator is expanded first. A result of zero is a proof and takes a fraction of
    the time of `simplify`, which is called only if the result is not zero.
    """
    entries = expression if isinstance(expression, sp.MatrixBase) else [expression]
    return all(sp.expand(sp.numer(sp.together(entry))) == 0 or sp.simplify(entry) == 0 for entry in entries)


def collapse_deltas(expression: sp.Expr) -> sp.Expr:
    """Evaluate sums over Kronecker deltas whose free indices lie in the range of summation.

    SymPy returns a `Piecewise` that also covers indices out of range; its first branch, for indices in the range, is kept.
    """
    while True:
        evaluated = expression.doit().replace(lambda part: isinstance(part, sp.Piecewise), lambda part: part.args[0].expr)
        if evaluated == expression:
            return expression
        expression = evaluated


def gaussian_expectation(
    polynomial: sp.Expr | sp.Matrix, variables: Iterable[sp.Symbol], variances: Iterable[sp.Expr]
) -> sp.Expr:
    """Expectation of a polynomial, or of each entry of a matrix, in independent centered normal variables.

    A monomial's expectation is the product of its factors' moments: E x^{2m} = (2m - 1)!! v^m for variance v, and odd
    moments are 0. SymPy raises its PolynomialError for anything other than a polynomial in the variables.

    Args:
        polynomial: a polynomial in the ``variables``, or a matrix of polynomials; other symbols are constants.
        variables: the normal variables.
        variances: the variance of each variable, a symbol or a number.
    """
    variables, variances = list(variables), list(variances)
    if len(variables) != len(variances):
        raise ValueError(f"variances must be one for each of {len(variables)} variables, got {len(variances)}")
    if isinstance(polynomial, sp.MatrixBase):
        return polynomial.applyfunc(lambda entry: gaussian_expectation(entry, variables, variances))
    total = sp.S.Zero
    for powers, coefficient in sp.Poly(polynomial, *variables).terms():
        if all(power % 2 == 0 for power in powers):
            moments = (sp.factorial2(p - 1) * v ** (p // 2) for p, v in zip(powers, variances, strict=True) if p)
            total += coefficient * sp.prod(moments)
    return sp.expand(total)
