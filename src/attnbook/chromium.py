"""The headless browser that tests and tools use."""

import os
import shutil

from playwright.sync_api import Browser, Playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")  # the first is headless only


def launch(playwright: Playwright, *flags: str) -> Browser:
    """Start the system's Chromium, or Playwright's own where there is none.

    Args:
        playwright: The object that ``sync_playwright()`` yields.
        flags: Command-line switches, in addition to those that are always set.

    Raises:
        playwright.sync_api.Error: No Chromium could be started.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []  # root cannot start Chromium's sandbox
    return playwright.chromium.launch(executable_path=found, args=[*root, "--disable-gpu", *flags])
