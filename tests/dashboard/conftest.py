"""A browser, and a service with canned answers for it to look at."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final, Self

import pytest
import uvicorn
from litestar import Litestar

from tests.dashboard.fake_service import TOKEN, fake_service

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
#: The browser itself reports these statuses, which some scenes answer on purpose.
EXPECTED: Final = re.compile(r"Failed to load resource: the server responded with a status of (401|404|409|422|503)")
#: Before any script of the page: remember what the content security policy refused.
REMEMBER: Final = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => {
  violations.push(event.violatedDirective + ' ' + event.blockedURI);
});
"""


class Served:
    """An application on a free port, in a thread."""

    def __init__(self, app: Litestar) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve([self._listener])), daemon=True)

    def __enter__(self) -> Self:
        self._listener.listen()  # connections wait until the server accepts them
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._listener.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the dashboard is tested with playwright's client")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed; scripts/install-servers installs it")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with Served(fake_service()) as served:
        yield served.url


@pytest.fixture
def own_services() -> Iterator[ExitStack]:
    """Services of one test; they end after its pages are closed."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def fresh_service(own_services: ExitStack) -> str:
    """A service whose scenes no other test has changed."""
    return own_services.enter_context(Served(fake_service())).url


@pytest.fixture(scope="module")
def locked_service() -> Iterator[str]:
    with Served(fake_service(token=TOKEN)) as served:
        yield served.url


@pytest.fixture(scope="module")
def read_only_service() -> Iterator[str]:
    with Served(fake_service(read_only=True)) as served:
        yield served.url


@pytest.fixture
def open_page(browser: Any, own_services: ExitStack) -> Iterator[Callable[..., Any]]:
    """Opens pages; at the end none of them may have reported an error or broken its security policy."""
    pages: list[Any] = []
    errors: list[str] = []

    def on_console(message: Any) -> None:
        if message.type in ("error", "warning") and not EXPECTED.match(message.text):
            errors.append(message.text)

    def opened(url: str, *, width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
        )
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.add_init_script(REMEMBER)
        page.on("console", on_console)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        pages.append(page)
        return page

    yield opened
    violations = [violation for page in pages for violation in page.evaluate("window.violations")]
    for page in pages:
        page.context.close()
    assert errors == []
    assert violations == []
