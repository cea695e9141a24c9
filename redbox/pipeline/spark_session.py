"""A Spark session for the jobs, and one clear sentence when Java is missing."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from redbox.errors import RedboxError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA: Final = 17  # the oldest version that Spark runs on
#: Parquet files hold times as INT64 microseconds in UTC. Spark's default, INT96, has no statistics, and other readers
#: take it for a time without a zone.
PARQUET_TIMES: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    **PARQUET_TIMES,
}
#: On one machine Spark shares the cores with the store, and the default garbage collector keeps threads running.
LOCAL_SETTINGS: Final = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}


def session(master: str | None = None, conf: Mapping[str, str] | None = None, *, name: str = "redbox") -> SparkSession:
    """Creates a session with the format `redbox`. Without a master, it uses that of spark-submit or the settings, or
    else this machine."""
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark import SparkConf
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from redbox.pipeline import register

    settled = SparkConf()
    for key, value in (conf or {}).items():
        settled.set(key, value)
    if master:
        settled.setMaster(master)
    settled.setIfMissing("spark.master", "local[*]")
    local = settled.get("spark.master", "").startswith("local")
    for key, value in {**SETTINGS, **(LOCAL_SETTINGS if local else {})}.items():
        settled.setIfMissing(key, value)
    if local and not os.environ.get("SPARK_LOCAL_IP"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # no name lookup, and no connections from other machines
    try:
        made = SparkSession.builder.appName(name).config(conf=settled).getOrCreate()
    except (PySparkException, OSError) as error:
        raise RedboxError(f"Spark did not start: {error}") from error
    made.sparkContext.setLogLevel("ERROR")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # logs what is raised as well
    register(made)
    return made


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Makes a session the active one of this thread while the block runs.

    Spark registers a source with the session it is asked to, but checks in the active one whether it exists already.
    """
    jvm: Any = getattr(spark, "_jvm", None)  # a session of Spark Connect has none
    if jvm is None:
        yield
        return
    sessions: Any = jvm.org.apache.spark.sql.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - PySpark has no other way
    try:
        yield
    finally:
        sessions.setActiveSession(before.get()) if before.isDefined() else sessions.clearActiveSession()


@contextmanager
def set_for(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Changes settings of the session while the block runs."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, kept in before.items():
            spark.conf.unset(name) if kept is None else spark.conf.set(name, kept)


def check_java() -> None:
    """Raises RedboxError with one sentence if there is no Java that Spark can use; Spark needs fifty lines for it."""
    how = f"install one, on Debian and Ubuntu: apt-get install openjdk-{JAVA}-jre-headless"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME is {home}, and there is none in it" if home else "none was found"
        raise RedboxError(f"Spark needs Java {JAVA} or newer, and {where}; {how}")
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    if found is not None and int(found[1]) < JAVA:
        raise RedboxError(f"Spark needs Java {JAVA} or newer, and {java} is Java {found[1]}; {how}")
