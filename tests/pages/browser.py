"""A real headless Chromium, for tests of pages."""

import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def opened(page: Path, *, script: str = "", width: int = 1000, network: bool = False) -> dict[str, str]:
    """Open a page from its file; return the `data-` attributes of its body after everything ran, and `console`.

    Args:
        page: The file.
        script: JavaScript that is put at the end of a copy of the page; it may write to `document.body.dataset`.
        width: Width of the window.
        network: Whether the browser may reach anything but files.
    """
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    if script:
        before, _, after = page.read_text(encoding="utf-8").rpartition("</body>")
        text = f"{before}<script type='module'>{script}</script></body>{after}"
        page = page.with_name(f"scripted-{page.name}")
        page.write_text(text, encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=10000",
        f"--window-size={width},900",
    ]
    options += [] if network else ["--host-resolver-rules=MAP * ~NOTFOUND"]
    command = [program, *options, "--enable-logging=stderr", "--dump-dom", page.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    found = re.search(r"<body([^>]*)>", done.stdout)
    assert found, done.stderr[-500:]
    marks = {name: unescape(value) for name, value in re.findall(r'data-([\w-]+)="([^"]*)"', found.group(1))}
    return marks | {"console": "\n".join(console)}
