"""The code behind the book *Attention as Optimization*: one subpackage per part, and what the parts share.

A bad argument raises a `TypeError` (not of its kind) or a `ValueError` (a shape, dtype, device or value that does not fit)
that names the argument, what was expected, and what came. Docstrings list only what else a function raises.
"""
