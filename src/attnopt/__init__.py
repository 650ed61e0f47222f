"""The code behind the book *Attention as Optimization*: one subpackage a part, and what the parts share."""
