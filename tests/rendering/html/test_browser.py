"""The page in a real browser without a window: treemap, table, dialog, and that nothing in a file runs."""

import json
import os
import shutil

import pytest

from tests.commands import run_here
from tests.rendering.html import pages
from tests.runs.generated import make

STORE = "store"  # a page that is written once

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium here: apt-get install chromium chromium-driver"),
]

SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser with a profile of its own, that logs its console and every request."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: see CONTRIBUTING.md")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SE_OFFLINE", "true")
        driver = webdriver.Chrome(options=options, service=Service(DRIVER, log_output=os.devnull))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """The files."""
    return pages.shelf(tmp_path_factory.mktemp("browser"))


@pytest.fixture
def opened(browser, shelf):
    """Opens the page of a file; afterwards nothing may have gone wrong, and nothing been asked for."""

    def open_page(name, other=None, wide=1280, dark=False, place=""):
        path = shelf / f"{name}.html"
        if name != STORE:
            path.write_text(pages.page(shelf / name, shelf / other if other else None), encoding="utf-8")
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        size = {"width": wide, "height": 900, "deviceScaleFactor": 1, "mobile": wide < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get_log("performance")
        browser.get(f"{path.as_uri()}{place}")
        if size["mobile"]:  # the width may reach a page after its script, which asks for it once
            until(browser, "matchMedia('(max-width: 720px)').matches")
            browser.refresh()
        return path.as_uri()

    yield open_page
    assert browser.get_log("browser") == []
    assert requests(browser) == set()


def requests(browser):
    """The addresses that were asked for, but for those of files and of data in the page itself.

    What a page of Chromium's own asks for, such as its new tab, is told now and then, and is none of ours.
    """
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    own = ("chrome://", "chrome-untrusted://")
    pairs = [(each["request"]["url"], each.get("documentURL", "")) for each in asked]
    sent = {url for url, page in pairs if not (url.startswith(own) or page.startswith(own))}
    assert sent
    return {url for url in sent if not url.startswith(("file://", "data:"))}


def texts(browser, selector):
    """The texts of all elements that match."""
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)", selector
    )


def click(browser, selector):
    """Click the first element that matches, as a pointer does, once the page has settled around it."""
    from selenium.common.exceptions import ElementClickInterceptedException
    from selenium.webdriver.support.ui import WebDriverWait

    def clicked(driver):
        element = driver.find_element("css selector", selector)
        driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        element.click()
        return True

    WebDriverWait(browser, 10, ignored_exceptions=[ElementClickInterceptedException]).until(clicked)


def until(browser, condition):
    """Wait for what a script says."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 10).until(lambda driver: driver.execute_script(f"return {condition}"))


def outer(browser):
    """The names of the areas of the first level."""
    return texts(browser, "#treemap .cell:not(.inner) span")


def test_the_treemap_drills_down(browser, opened):
    """A click opens a module, its name above and Escape lead back, and a tensor opens its card."""
    from selenium.webdriver.common.keys import Keys

    opened("model.pt")
    assert outer(browser)[0] == "h"
    browser.execute_script("document.querySelector('#treemap .cell').click()")
    assert set(outer(browser)) == {"h.0", "h.1", "h.2", "h.3"} and texts(browser, "#crumbs button") == ["all", "h"]
    browser.find_element("css selector", "#treemap .cell").send_keys(Keys.ENTER)
    assert texts(browser, "#crumbs button")[:2] == ["all", "h"] and len(texts(browser, "#crumbs button")) == 3
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert texts(browser, "#crumbs button") == ["all", "h"]
    click(browser, "#crumbs button")
    assert outer(browser)[0] == "h"
    browser.execute_script("document.querySelector('#treemap .cell:nth-last-child(1)').click()")
    assert browser.execute_script("return document.querySelector('#tensor').open")
    assert texts(browser, "#tensor-name") == ["wte.weight"]
    assert "50 × 16" in texts(browser, "#tensor dd")


def test_the_treemap_goes_by_keyboard(browser, opened):
    """Arrows go from area to area, and a tooltip says what each is."""
    from selenium.webdriver.common.keys import Keys

    opened("model.pt")
    browser.execute_script("document.querySelector('#treemap .cell').focus()")
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    focused = browser.execute_script("return document.activeElement.getAttribute('aria-label')")
    assert focused.startswith("wte.weight, 3.2 kB")
    assert browser.find_element("id", "tip").text.startswith("wte.weight\n3.2 kB")


def test_areas_can_be_coloured_by_change(browser, opened):
    """Of two files: the modules that changed stand out, and a legend says how far."""
    opened("model.pt", "tuned.pt")
    browser.execute_script(
        "colours = document.querySelector('#colours'); colours.value = 'change';"
        "colours.dispatchEvent(new Event('change'))"
    )
    assert browser.execute_script("return document.querySelectorAll('#treemap .c0').length") > 1
    assert browser.execute_script("return document.querySelectorAll('#treemap .c4, #treemap .c5').length") >= 1
    assert "no change" in texts(browser, "#treemap-key span")


def test_the_table_filters_and_sorts(browser, opened):
    """Words narrow it down, a title sorts, one button shows more."""
    opened("many.pt")
    assert len(texts(browser, "#grid tbody tr")) == 100
    click(browser, "#more")
    assert len(texts(browser, "#grid tbody tr")) == 500
    browser.find_element("id", "filter").send_keys("m.69 WEIGHT")
    until(browser, "document.querySelector('#found').textContent.startsWith('11 tensors')")
    assert texts(browser, "#grid tbody tr th") == ["m.69.weight", *[f"m.{number}.weight" for number in range(690, 700)]]
    click(browser, "#grid [data-sort=name] button")
    click(browser, "#grid [data-sort=name] button")
    assert texts(browser, "#grid tbody tr th")[0] == "m.699.weight"
    assert browser.execute_script("return document.querySelector('[data-sort=name]').ariaSort") == "descending"
    browser.find_element("id", "filter").send_keys(" nothing")
    until(browser, "document.querySelector('#found').textContent.startsWith('0 tensors')")
    assert texts(browser, "#grid tbody tr") == []


@pytest.mark.parametrize(
    ("name", "other", "choice", "expected"),
    [
        ("broken.pt", None, "odd", ["state_dict/module.h.1.mlp.weight"]),
        ("model.pt", "tuned.pt", "differs", ["h.1.attn.weight", "h.3.mlp.bias"]),
        ("model.pt", None, "same", [f"h.{n}.{kind}" for n in range(4) for kind in ("mlp.bias", "norm.weight")]),
    ],
)
def test_the_table_shows_a_choice(browser, opened, name, other, choice, expected):
    """Only tensors with NaN, only those that changed, only constant ones."""
    opened(name, other)
    browser.execute_script(
        "only = document.querySelector('#only'); only.value = arguments[0]; only.dispatchEvent(new Event('change'))",
        choice,
    )
    assert texts(browser, "#grid tbody tr th") == expected


def test_a_command_is_copied(browser, opened):
    """The button beside a command says that it has been copied."""
    opened("broken.pt")
    click(browser, ".finding .copy")
    assert until(browser, "document.querySelector('.finding .copy').textContent !== 'copy'")


def test_nothing_in_a_key_runs(browser, opened):
    """Elements and scripts in names are shown as text, in every part of the page, also once it moves."""
    opened("hostile.pt", "model.pt")
    browser.execute_script("document.querySelectorAll('#treemap .cell').forEach((cell) => cell.click())")
    browser.execute_script("document.querySelector('#tensor').close(); document.querySelector('.opener').click()")
    assert browser.title.startswith("hostile.pt")
    assert browser.execute_script("return document.querySelectorAll('img, main script').length") == 0
    assert pages.HOSTILE in texts(browser, "#tensor-name")[0]


def test_even_our_own_script_may_not_make_markup(browser, shelf):
    """The policy is in force: text cannot become elements, and nothing can be asked for."""
    path = shelf / "policy.html"
    path.write_text(pages.page(shelf / "model.pt"), encoding="utf-8")
    browser.get(path.as_uri())
    failed = browser.execute_script("try { document.body.innerHTML = '<b>x</b>' } catch (error) { return error.name }")
    assert failed == "TypeError"
    refused = browser.execute_async_script(
        "const [done] = arguments;"
        "document.addEventListener('securitypolicyviolation', (event) => done(event.blockedURI));"
        "const image = document.createElement('img'); image.src = 'http://127.0.0.1:9/'; document.body.append(image);"
    )
    assert refused.startswith("http://127.0.0.1:9")
    browser.get_log("browser")


@pytest.mark.parametrize("wide", [390, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_the_screen(browser, opened, wide, dark):
    """No part of it is wider than a phone, and text stands out from the paper, by day and by night."""
    opened("broken.pt", "model.pt", wide, dark)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= wide
    paper, ink = browser.execute_script(
        "const look = getComputedStyle(document.body); return [look.backgroundColor, look.color]"
    )
    assert contrast(paper, ink) > 10
    cells = browser.execute_script(
        "const all = document.querySelector('#treemap').getBoundingClientRect();"
        "const boxes = [...document.querySelectorAll('#treemap .cell')].map((each) => each.getBoundingClientRect());"
        "return boxes.every((box) => box.right <= all.right + 1 && box.bottom <= all.bottom + 1);"
    )
    assert cells


def contrast(one, other):
    """The contrast of two colours (https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio)."""
    light = sorted([luminance(one), luminance(other)])
    return (light[1] + 0.05) / (light[0] + 0.05)


def luminance(colour):
    """How bright ``rgb(1, 2, 3)`` is."""
    parts = [int(part) / 255 for part in colour[4:-1].split(",")]
    red, green, blue = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_link_leads_to_a_row_that_is_not_there_yet(browser, opened):
    """The table is narrowed down to it; sections that are folded on a phone open."""
    address = opened("many.pt", wide=390)
    folded = "[...document.querySelectorAll('section > details:not([open])')].map((each) => each.parentNode.id)"
    assert "tensors" in browser.execute_script(f"return {folded}")
    browser.get(f"{address}#tensor:m.650.weight")
    until(browser, "document.querySelector('.visited')?.id === 'tensor:m.650.weight'")
    assert "tensors" not in browser.execute_script(f"return {folded}")


def test_without_scripts_there_is_a_page(browser, opened):
    """Findings, drawings and the first rows need none; what would do nothing is not shown."""
    try:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        opened("broken.pt")
        # while they are off: a script of the page that is late would run as soon as they are on again
        assert len(browser.find_elements("css selector", "#grid tbody tr")) == 18
        assert browser.find_elements("css selector", "#treemap svg rect")
        assert not [each for each in browser.find_elements("css selector", ".copy, .bar") if each.is_displayed()]
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


# ---- the page of a store


@pytest.fixture(scope="module")
def store(shelf):
    """The page of a store with damaged checkpoints, and names that are long."""
    for number in (3, 5, 8):
        folder = shelf / "runs" / f"a-run-with-a-name-that-is-longer-than-any-phone-is-wide-{number}"
        folder.mkdir(parents=True)
        make(number, folder)
    run_here("audit", "runs", "-o", "store.db", "--jobs", "1", cwd=shelf)
    assert run_here("report", "store.db", "-o", f"{STORE}.html", cwd=shelf).returncode == 0


@pytest.mark.parametrize("wide", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_of_a_store_fits_the_screen(browser, store, opened, wide, dark):
    """Also where a row has a long name: nothing is cut, and the page does not move sideways."""
    opened(STORE, wide=wide, dark=dark)
    browser.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= wide
    tables = "[...document.querySelectorAll('table')].filter((each) => each.id !== 'run-table' || innerWidth < 500)"
    wider = f"{tables}.filter((each) => each.scrollWidth > each.parentNode.clientWidth + 1).map((each) => each.id)"
    assert browser.execute_script(f"return {wider}") == []


def test_a_link_into_the_page_of_a_store_opens_its_section(browser, store, opened):
    """On a phone, where it is folded at first; the keyboard opens and closes sections, and the filter hides rows."""
    from selenium.webdriver.common.keys import Keys

    opened(STORE, wide=390, place="#runs")
    until(browser, "document.querySelector('#runs .fold').open && !document.querySelector('#size .fold').open")
    until(browser, "Math.abs(document.querySelector('#runs').getBoundingClientRect().top) < 120")
    summary = browser.find_element("css selector", "#size summary")
    summary.send_keys(Keys.ENTER)
    until(browser, "document.querySelector('#size .fold').open")
    browser.find_element("css selector", "#runs input").send_keys("wide-5")
    until(browser, "document.querySelectorAll('#run-table tbody tr:not([hidden])').length === 1")
