"""`redbox pipeline` without its optional packages: the help works, and each job prints the pip command."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: Runs every job in an interpreter that cannot import the packages named on its command line.
PROGRAM = """
import json, sys
for name in sys.argv[1:]:
    sys.modules[name] = None
from click.testing import CliRunner
from redbox.cli.app import cli
from redbox.cli.pipeline.group import JOBS
needed = {
    "load": ["events.parquet"], "report": ["--to", "out"], "audit": [], "patch": ["--with", "json:loads", "--yes"],
    "archive": ["--to", "out"], "replay": ["--from", "lake", "--all", "--yes"], "drain": ["--to", "out"],
    "follow": ["--to", "out"],
}
def run(*arguments):
    done = CliRunner().invoke(cli, ["--url", "redis://127.0.0.1:1/0", "pipeline", *arguments])
    return done.exit_code, done.output
print(json.dumps({job: [run(job, *needed[job]), run(job, "--help")] for job in JOBS}))
"""


@pytest.mark.parametrize("missing", [("pyspark", "py4j", "pyarrow"), ("pyspark", "py4j"), ("pyarrow",)], ids="+".join)
def test_a_job_without_the_extra_prints_the_pip_command(missing: tuple[str, ...]):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *missing], capture_output=True, text=True, check=True, timeout=120
    )
    for job, [(code, output), (help_code, help_text)] in json.loads(done.stdout).items():
        assert (code, output.splitlines()) == (
            1,
            ["error: the pipeline needs an optional part: pip install 'redbox-outbox[pipeline]'"],
        ), job
        assert (help_code, help_text.startswith("Usage:")) == (0, True), job
