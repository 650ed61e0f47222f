"""The book's machinery: claims, exercises, pages, pictures. It knows nothing of the papers; the folder ``book`` tells it."""
