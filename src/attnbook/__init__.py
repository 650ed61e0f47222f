"""The code that builds the book: explorers, claims, exercises, and pages. The mathematics is in `attnopt`."""
