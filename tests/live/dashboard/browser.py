"""A real browser without a screen, and the values on a Bokeh page in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.support.wait import WebDriverWait

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
_READ = """
const plain = (one) => {
  if (ArrayBuffer.isView(one) || Array.isArray(one)) return Array.from(one, plain);
  return Number.isNaN(one) ? null : one;
};
const source = Bokeh.documents[0].get_model_by_name(arguments[0]);
return Object.fromEntries(Object.entries(Object.fromEntries(
  source.data instanceof Map ? source.data : Object.entries(source.data)
)).map(([key, one]) => [key, plain(one)]));
"""
# Bokeh keeps each model's elements in a shadow tree of its own.
_TEXT = """
const texts = [];
const walk = (node) => {
  if (node.nodeType === Node.TEXT_NODE) texts.push(node.textContent);
  if (node.nodeName === 'STYLE' || node.nodeName === 'SCRIPT') return;
  if (node.shadowRoot) node.shadowRoot.childNodes.forEach(walk);
  node.childNodes.forEach(walk);
};
walk(document.body);
return texts.map((one) => one.trim()).filter((one) => one).join('\\n');
"""


@contextmanager
def chromium(directory: Path, *, driver: str, size: tuple[int, int]) -> Iterator[Chrome]:
    """Start Debian's Chromium with a new profile in a directory."""
    options = ChromeOptions()
    for flag in (*_FLAGS, f"--user-data-dir={directory}", f"--window-size={size[0]},{size[1]}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = Chrome(options=options, service=ChromeService(executable_path=driver))
    try:
        yield browser
    finally:
        browser.quit()


class BokehPage:
    """A Bokeh document that is open in a browser."""

    def __init__(self, browser: Chrome, url: str) -> None:
        self._browser = browser
        browser.get(url)
        self.wait("return window.Bokeh !== undefined && Bokeh.documents.length > 0")

    def wait(self, script: str, *arguments: Any, timeout_s: float = 60) -> None:
        """Wait until a script returns something true."""
        WebDriverWait(self._browser, timeout_s, poll_frequency=0.1).until(
            lambda browser: browser.execute_script(script, *arguments)
        )

    def data(self, name: str) -> dict[str, list[Any]]:
        """Return the columns of a data source as they are in the browser now."""
        found: dict[str, list[Any]] = self._browser.execute_script(_READ, name)
        return found

    def text(self) -> str:
        """Return all words on the page."""
        return str(self._browser.execute_script(_TEXT))

    def wait_for(self, words: str, *, timeout_s: float = 60) -> None:
        """Wait until words stand on the page; a browser draws a little later than it knows."""
        WebDriverWait(self._browser, timeout_s, poll_frequency=0.1).until(
            lambda _: words in self.text(), f"{words!r} is not on the page"
        )

    def choose(self, name: str, value: str) -> None:
        """Set what a widget has, as a user who chooses it does."""
        script = "Bokeh.documents[0].get_model_by_name(arguments[0]).value = arguments[1]"
        self._browser.execute_script(script, name, value)

    def links(self) -> list[str]:
        """Return where the page's links lead."""
        script = "return Array.from(document.links, (one) => one.getAttribute('href'))"
        return list(self._browser.execute_script(script))

    def complaints(self) -> list[str]:
        """Return what the browser's console has said of errors."""
        return [
            one["message"] for one in self._browser.get_log("browser") if one["level"] == "SEVERE"
        ]

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._browser.get_screenshot_as_png())
