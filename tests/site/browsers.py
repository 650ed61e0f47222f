"""Pages of Firefox (over WebDriver BiDi) and of WebKitGTK (over WebDriver), as Debian has them."""

import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from websocket import create_connection

MINIBROWSER = next(Path("/usr/lib").glob("*/webkit2gtk-4.1/MiniBrowser"), None)
SECONDS = 120  # the machine may be busy with other things


class Firefox:
    """A page of Firefox."""

    def __init__(self, port):
        address = f"ws://127.0.0.1:{port}/session"
        self.socket = patiently(lambda: create_connection(address, timeout=SECONDS, suppress_origin=True))
        self.numbers = itertools.count()
        self.ask("session.new", capabilities={})
        self.page = {"context": self.ask("browsingContext.getTree")["contexts"][0]["context"]}

    def ask(self, method, **parameters):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self.socket.recv())).get("id") != number:
            pass
        assert answer["type"] == "success", answer
        return answer["result"]

    def goto(self, address):
        for place in ("about:blank", address):
            deadline = time.monotonic() + SECONDS
            while not self.arrived(place):
                assert time.monotonic() < deadline, f"{place} is not loaded"

    def arrived(self, place):
        """Go there and wait a while; the page before, whose address follows its state, may interrupt."""
        with contextlib.suppress(AssertionError):
            self.ask("browsingContext.navigate", **self.page, url=place, wait="none")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            time.sleep(0.02)
            with contextlib.suppress(AssertionError):  # it leaves one page for the other
                ready, there = self.run("return [document.readyState, location.href];")
                if ready == "complete" and there.split("#")[0] == place.split("#")[0]:
                    return True
        return False

    def run(self, body):
        """What the body of an asynchronous function returns in the page."""
        call = f"(async () => {{ {body} }})().then(JSON.stringify)"
        found = self.ask("script.evaluate", expression=call, target=self.page, awaitPromise=True)
        assert found["type"] == "success", found
        return json.loads(found["result"].get("value", "null"))

    def act(self, *actions):
        self.ask("input.performActions", **self.page, actions=actions)


class WebKit:
    """A page of WebKitGTK's small browser."""

    def __init__(self, port):
        self.address = f"http://127.0.0.1:{port}/session"
        options = {"webkitgtk:browserOptions": {"binary": str(MINIBROWSER), "args": ["--automation"]}}
        session = patiently(lambda: self.ask("", capabilities={"alwaysMatch": options}))
        self.address += f"/{session['sessionId']}"
        self.ask("/timeouts", script=1000 * SECONDS, pageLoad=1000 * SECONDS)

    def ask(self, path, **body):
        request = urllib.request.Request(self.address + path, json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def goto(self, address):
        self.ask("/url", url=address)

    def run(self, body):
        """What the body of an asynchronous function returns in the page."""
        then = "(value) => done([value]), (error) => done(`${error}`)"
        call = f"const done = arguments[0]; (async () => {{ {body} }})().then({then});"
        found = self.ask("/execute/async", script=call, args=[])
        assert isinstance(found, list), found
        return found[0]

    def act(self, *actions):
        self.ask("/actions", actions=actions)


@contextlib.contextmanager
def firefox():
    """A page of Firefox, without a window."""
    port = free_port()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        command = ["firefox-esr", "--headless", "--no-remote", "--profile", home, "--remote-debugging-port", str(port)]
        with running(*command, HOME=home):
            page = Firefox(port)
            yield page
            page.socket.close()


@contextlib.contextmanager
def webkit():
    """A page of WebKitGTK, in a window on no screen."""
    port, display = free_port(), f":{free_port()}"
    with (
        running("Xvfb", display, "-screen", "0", "1280x900x24"),
        running("WebKitWebDriver", f"--port={port}", DISPLAY=display),
    ):
        yield WebKit(port)


KINDS = {"firefox": firefox, "webkit": webkit}


def missing(kind):
    """What this machine lacks of a browser; empty if it is there."""
    needed = {"firefox": ("firefox-esr",), "webkit": ("WebKitWebDriver", "Xvfb")}[kind]
    lacking = [name for name in needed if not shutil.which(name)]
    return lacking or (["MiniBrowser"] if kind == "webkit" and MINIBROWSER is None else [])


def free_port():
    """A port of localhost that nothing uses."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return asked.getsockname()[1]


def patiently(attempt):
    """What an attempt returns, as soon as somebody answers."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return attempt()
        except OSError:
            assert time.monotonic() < deadline, "the browser does not answer"
            time.sleep(0.05)


@contextlib.contextmanager
def running(*command, **environment):
    """Let a program run meanwhile."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    program = subprocess.Popen(command, env=os.environ | environment, **quiet)
    try:
        yield
    finally:
        program.terminate()
        program.wait(SECONDS)
