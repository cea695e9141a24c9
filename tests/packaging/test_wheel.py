"""The wheel contains redbox and its scripts, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections import defaultdict
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[2]


def build(source: Path, out: Path, kind: str) -> Path:
    """Builds with the installed build system: a test downloads nothing."""
    command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--skip-dependency-check"]
    result = subprocess.run([*command, "--outdir", out, source], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")


def contents(wheel: Path) -> set[str]:
    """The files of a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def scripts() -> set[str]:
    return {f"redbox/_lua/{path.relative_to(ROOT / 'lua')}" for path in (ROOT / "lua").rglob("*.lua")}


def test_the_wheel_holds_every_script_and_include(wheel: Path):
    found = {name for name in contents(wheel) if name.startswith("redbox/_lua/")}
    assert found == scripts()
    assert {"redbox/_lua/put.lua", "redbox/_lua/claim.lua", "redbox/_lua/include/keys.lua"} <= found


def test_the_wheel_holds_every_module(wheel: Path):
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "redbox").rglob("*.py")}
    assert modules <= contents(wheel)
    assert "redbox/py.typed" in contents(wheel)


def test_the_wheel_holds_the_dashboard(wheel: Path):
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "redbox/service/dashboard").rglob("*") if path.is_file()}
    assert files <= contents(wheel)
    assert {"redbox/service/dashboard/index.html", "redbox/service/dashboard/views/overview.js"} <= files


def test_nothing_but_redbox_comes_into_site_packages(wheel: Path):
    assert {name.split("/")[0] for name in contents(wheel)} == {"redbox"}


def test_the_wheel_names_itself(wheel: Path):
    assert wheel.name.startswith("redbox_outbox-")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        (entry_points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        text = archive.read(entry_points).decode()
    assert "redbox = redbox.cli:main" in text
    assert "[pytest11]" in text


def described(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(metadata).decode())


def test_the_wheel_links_to_the_project(wheel: Path):
    links = dict(link.split(", ") for link in described(wheel).get_all("Project-URL", []))
    assert {"Homepage", "Source", "Issues", "Changelog"} <= set(links)
    assert all(link.startswith("https://github.com/redbox-outbox/redbox") for link in links.values())


def test_the_extra_all_holds_every_extra_for_applications_and_no_test_tool(wheel: Path):
    needs: dict[str, set[str]] = defaultdict(set)
    for text in described(wheel).get_all("Requires-Dist", []):
        extra = re.search(r"extra == '(\w+)'", text)
        needs[extra[1] if extra else ""].add(re.split(r"[\[<>=;]", text)[0].strip())
    assert {"embedded", "http", "pipeline", "testing", "uvloop"} < set(needs)
    for_developers = {"", "all", "dev", "quick", "testing"}
    assert needs["all"] == {name for extra, names in needs.items() if extra not in for_developers for name in names}
    assert "pytest" in needs["testing"]


def test_the_source_archive_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert (unpacked / "lua" / "put.lua").is_file()
    assert not (unpacked / "tests").exists()
    assert contents(build(unpacked, tmp_path / "out", "wheel")) == contents(wheel)


LIFE = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
import redbox
from redbox import Box, Event
from redbox.store.scripts.registry import REGISTRY, load
assert redbox.__file__.startswith(sys.argv[1]), redbox.__file__
assert all(load(name).text.startswith("#!lua") for name in REGISTRY)

async def life():
    async with Box.open("memory:") as box:
        await box.put(Event("user.created", {"id": 42}))
        return await box.ack(await box.claim("relay-1"))

print(asyncio.run(life()))
"""


def test_the_wheel_works_as_a_zip_on_the_path(wheel: Path, tmp_path: Path):
    """Spark's --py-files puts it there."""
    result = subprocess.run(
        [sys.executable, "-c", LIFE, str(wheel)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (result.returncode, result.stdout) == (0, "[True]\n"), result.stderr
