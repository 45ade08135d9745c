"""Screenshots of the page for the docs: `python docs/scripts/screenshots.py [NAME ...]` starts `strata serve`, opens each
address in Chromium and writes docs/explore/NAME.webp.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "docs" / "explore"
MOST = 140_000  # bytes of a picture
SHOTS = {  # name: (page, light or dark, height, seconds to wait, button to press, seconds to wait then)
    "start": ("", "light", 800, 2, "", 0),
    "what-if": ("#what-if", "light", 1100, 6, "", 0),
    "what-if-dark": ("#what-if", "dark", 800, 6, "", 0),
    "compare": ("#compare", "light", 800, 15, "", 0),
    "stack": ("#stack", "light", 800, 8, "", 0),
    "fabric": ("#fabric", "light", 800, 8, "", 0),
    "technology": ("#technology", "light", 800, 8, "", 0),
    "mapping": ("#mapping", "light", 1000, 15, "", 0),
    "serving": ("#serving", "light", 800, 15, "", 0),
    "training": ("#training", "light", 800, 20, "", 0),
    "search": ("#search", "light", 1000, 5, "Start the study", 60),
    "validation": ("#validation", "light", 800, 8, "", 0),
    "studies": ("#studies", "light", 800, 8, "", 0),
}
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


def small(png: bytes) -> bytes:
    """A screenshot as WebP, as good as its size allows."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for quality in (88, 80, 70, 60, 50):
        kept = io.BytesIO()
        picture.save(kept, "WEBP", quality=quality, method=6)
        if kept.tell() <= MOST:
            break
    return kept.getvalue()


def awaited(address: str, seconds: float = 120.0) -> None:
    """Wait until a server answers."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.3)
    raise TimeoutError(f"nobody answers at {address}")


def take(names: list[str]) -> None:
    """Take the screenshots of these names."""
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "strata", "serve", "--port", "0", "--studies", folder]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found, "the server said no address"
            awaited(found[0])
            with sync_playwright() as play:
                browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
                for name in names:
                    page, theme, height, wait, button, then = SHOTS[name]
                    tab = browser.new_page(viewport={"width": 1280, "height": height}, color_scheme=theme)
                    tab.goto(found[0] + page)
                    tab.wait_for_selector("main h1", timeout=120_000)
                    tab.wait_for_timeout(wait * 1000)
                    if button:
                        tab.get_by_role("button", name=button).click()
                        tab.wait_for_timeout(then * 1000)
                    (TARGET / f"{name}.webp").write_bytes(small(tab.screenshot()))
                    tab.close()
                browser.close()
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    take(sys.argv[1:] or list(SHOTS))
