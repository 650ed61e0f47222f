"""What makes the book: explorers, claims, exercises, pages. The mathematics that it shows is in `attnopt`."""
