"""What explorers are made of, and how they come into the built page; which there are is for another package to say."""

from bookkit.explorers.base import KINDS, Explorer, Interval, Numbers

__all__ = ["KINDS", "Explorer", "Interval", "Numbers"]
