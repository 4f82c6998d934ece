"""The browser as a page: in a real web browser without a window, and who is let in."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec

import pytest
from textual.color import Color

from ckptdoctor.cli.main import run as command
from ckptdoctor.tui import serving
from ckptdoctor.tui.themes import theme_named
from tests.commands import run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync", "--window-size=1280,800"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)


@pytest.fixture
def served(library):
    """A process that serves a file at a free port; its address. Interrupted, it ends at once, and without a word."""
    pytest.importorskip("textual_serve", reason="textual-serve is not installed: see CONTRIBUTING.md")
    with serving_here(library) as address:
        yield address


@contextmanager
def serving_here(library, *options):
    """The address of a file that is served meanwhile."""
    arguments = (sys.executable, "-m", "ckptdoctor", "browse", "resnet.pt", "--serve", "--port", "0", *options)
    process = subprocess.Popen(arguments, cwd=library, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = process.stdout.readline()
    assert "for this machine only" in said
    yield re.search(r"http://127\.0\.0\.1:\d+", said)[0]
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[0] == ""
    assert process.returncode == 0


@pytest.fixture
def chromium(tmp_path):
    """A browser with a profile of its own, that logs every request and every frame of a socket."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: see CONTRIBUTING.md")
    if not (CHROMIUM and DRIVER):
        pytest.skip("no chromium here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SE_OFFLINE", "true")
        service = webdriver.chrome.service.Service(DRIVER, log_output=os.devnull)
        driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


class Log:
    """What a page has asked for, and what the socket has brought it."""

    def __init__(self, driver):
        self.driver = driver
        self.requested = set()
        self.shown = b""

    def read(self):
        """Take up what is new."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requested.add(message["params"]["request"]["url"])
            frame = message["params"].get("response", {})
            if message["method"] == "Network.webSocketFrameReceived" and frame["opcode"] == 2:
                self.shown += base64.b64decode(frame["payloadData"])
        return self

    def until(self, text):
        """Wait until a text has been drawn since the last call."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 30).until(lambda _: text in self.read().shown)
        self.shown = b""


@pytest.mark.slow
def test_in_a_web_browser(served, chromium):
    """The page shows the tree, keys work without a click, q ends it; nothing is asked of any other machine."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    chromium.get("about:blank")
    log = Log(chromium)
    log.read().requested.clear()
    chromium.get(served)
    log.until(b"module-prefix")
    ActionChains(chromium).send_keys("?").perform()
    log.until(b"esc closes")
    ActionChains(chromium).send_keys("q").pause(0.5).send_keys("/").perform()
    log.until(b"*.weight")
    ActionChains(chromium).send_keys("fc").perform()
    log.until(b"2 of 15 tensors")
    assert chromium.title == "resnet.pt · ckptdoctor"
    assert {url.removeprefix(served).partition("?")[0] for url in log.requested if not url.startswith("data:")} == {
        "/",
        "/static/css/xterm.css",
        "/static/js/textual.js",
        "/static/fonts/RobotoMono-VariableFont_wght.ttf",
    }
    ActionChains(chromium).send_keys("\ue007").pause(0.3).send_keys("q").perform()
    closed = "return getComputedStyle(document.querySelector('#closed')).display"
    WebDriverWait(chromium, 20).until(lambda driver: driver.execute_script(closed) == "flex")


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "textual-dark"])
def test_the_page_has_the_colours_of_its_theme(library, chromium, theme):
    """Around the terminal and beside its last column. Interrupted, it does not wait for an open page."""
    pytest.importorskip("textual_serve", reason="textual-serve is not installed: see CONTRIBUTING.md")
    with serving_here(library, "--theme", theme) as address:
        chromium.get(address)
        Log(chromium).until(b"module-prefix")
        ask = "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor"
        drawn = {each: chromium.execute_script(ask, each) for each in ("body", ".xterm-viewport")}
    background = theme_named(theme).to_color_system().generate()["background"]
    found = {each: tuple(map(int, re.findall(r"\d+", color))) for each, color in drawn.items()}
    assert found == dict.fromkeys(found, Color.parse(background).rgb)


def asked(url, **headers):
    """The status of an answer."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(url, headers=headers), timeout=20) as answer:
            return answer.status
    except HTTPError as error:
        with error:
            return error.code


@pytest.mark.slow
def test_pages_of_other_sites_get_no_answer(served):
    """Neither by a request that says where it comes from, nor by a name that leads here."""
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    assert asked(served) == 200
    assert asked(served, Origin="https://elsewhere.example") == 403
    assert asked(served, Host="elsewhere.example") == 403
    assert asked(f"{served}/ws", Origin="https://elsewhere.example", **upgrade) == 403
    assert asked(f"{served}/ws", Origin="null", **upgrade) == 403


@pytest.mark.parametrize(
    ("host", "origin", "bound", "answer"),
    [
        ("127.0.0.1:8000", None, "127.0.0.1", True),
        ("localhost:8000", "http://localhost:8000", "127.0.0.1", True),
        ("[::1]:8000", "http://[::1]:8000", "::1", True),
        ("localhost:8000", "http://localhost:9000", "127.0.0.1", False),
        ("rebound.example:8000", "http://rebound.example:8000", "127.0.0.1", False),
        (None, None, "127.0.0.1", False),
        ("10.0.0.7:8000", "http://10.0.0.7:8000", "0.0.0.0", True),
        ("models.example", "https://models.example", "0.0.0.0", True),
        ("10.0.0.7:8000", "http://elsewhere.example", "0.0.0.0", False),
    ],
)
def test_who_may_enter(host, origin, bound, answer):
    """Our own page may, under the names of this machine, or under any where it is for others as well."""
    assert serving.may_enter(host, origin, bound) is answer


def test_who_can_reach_it_is_said():
    """On another address than this machine's own, everyone can."""
    assert "for this machine only" in serving.announcement("a.pt", "127.0.0.1", 8000)
    assert "http://[::1]:8000, for this machine only" in serving.announcement("a.pt", "::1", 8000)
    assert "EVERYONE" in serving.announcement("a.pt", "0.0.0.0", 8000)


def test_without_textual_serve(monkeypatch, capfd):
    """What to install is said."""
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    assert command(["browse", "resnet.pt", "--serve"]) == 2
    assert "pip install 'ckptdoctor[web]'" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(find_spec("textual_serve") is None, reason="textual-serve is not installed")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere.pt", "--serve"), b"nowhere.pt cannot be opened: No such file or directory."),
        (("resnet.pt", "--serve", "--host", "192.0.2.1"), b"Cannot serve on 192.0.2.1:8000: "),
        (("resnet.pt", "--port", "9"), b"--port is for --serve."),
        (("resnet.pt", "--port", "9", "--host", "::"), b"--host and --port are for --serve."),
    ],
    ids=str,
)
def test_what_cannot_be_served(library, arguments, sentence):
    """One line, and status 2."""
    result = run("browse", *arguments, cwd=library)
    assert result.returncode == 2
    assert sentence in result.stderr and result.stderr.count(b"\n") == 1


def test_the_same_command_is_run_for_the_page(monkeypatch):
    """With its options and its file, but not with those of serving."""
    started = []
    monkeypatch.setattr(serving, "serve", lambda *arguments, theme: started.append((*arguments, theme)))
    assert command(["browse", "--serve", "--theme", "light", "resnet.pt", "--port", "80", "--host", "::"]) == 0
    assert started == [("resnet.pt", ["--theme", "light", "--", "resnet.pt"], "::", 80, "light")]
