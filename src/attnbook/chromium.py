"""The browser without a window that tests and tools drive."""

import os
import shutil

from playwright.sync_api import Browser, Playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")  # the first has no window to prepare


def launch(playwright: Playwright, *flags: str) -> Browser:
    """Start the system's Chromium, or Playwright's own where there is none.

    Args:
        playwright: What ``sync_playwright()`` gives.
        flags: Switches for its command line, in addition to those that every machine needs.

    Raises:
        playwright.sync_api.Error: No Chromium could be started.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []  # Chromium refuses its sandbox to root only
    return playwright.chromium.launch(executable_path=found, args=[*root, "--disable-gpu", *flags])
