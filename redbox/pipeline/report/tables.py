"""The tables of a report: DataFrames over the events of a box and its archive, all computed in one Spark job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from redbox.fingerprints import CUT_WORD, FINGERPRINTED, LONGEST_CHARACTER, LOWER, NO_TEXT, RULES, UPPER
from redbox.pipeline.report.facts import HOUR, MIN_EVENTS_OF_A_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: The columns that a report reads; never a payload.
COLUMNS: Final = (
    "event_id", "event_type", "state", "phase", "partition_key", "ordering_key", "created_at", "available_at",
    "attempts", "claim", "last_error", "published_at", "died_at", "history",
)  # fmt: skip
PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
ACCURACY: Final = 100_000  # a percentile is off by at most one event in this many
MOST_KEYS: Final = 200
FAILURES: Final = ("retried", "expired", "died")  # outcomes in a history that are failures


def events(
    live: DataFrame, archive: DataFrame | None = None, since: datetime | None = None, until: datetime | None = None
) -> DataFrame:
    """The deliveries: a row for each claim by which an event was settled, and for its present state.

    An event that is in both the box and the archive counts once, as it is in the box. One that was archived and then
    replayed has a row for each time; `latest` marks its present state.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if archive is None:
        table = live.select(*COLUMNS, f.lit("box").alias("place"), f.lit(True).alias("latest"))
    else:
        both = live.select(*COLUMNS, f.lit("box").alias("place")).unionByName(
            archive.select(*COLUMNS, f.lit("archive").alias("place"))
        )
        # The box first: an event that was restored from the archive has no claim yet.
        newest_first = Window.partitionBy("event_id").orderBy(f.desc("place"), f.desc("claim"))
        table = (
            both.withColumn("end", f.struct("published_at", "died_at"))
            .withColumns({f"newer_{name}": f.lag(name).over(newest_first) for name in ("claim", "end")})
            # The same end with another number: it was superseded after it was archived.
            .where("newer_claim IS NULL OR newer_claim <> claim AND newer_end <> end")
            .withColumn("latest", f.col("newer_claim").isNull())
            .drop("end", "newer_claim", "newer_end")
        )
    if since is not None:
        table = table.where(f.col("created_at") >= f.lit(since))
    if until is not None:
        table = table.where(f.col("created_at") <= f.lit(until))
    return (
        table.withColumn("at_once", _at_once())
        .withColumn("due_at", _due_at())
        .withColumn(
            "latency_ms",
            f.when(
                f.col("state") == "PUBLISHED",
                f.greatest(f.unix_millis("published_at") - f.unix_millis("due_at"), f.lit(0)),
            ),
        )
    )


def _at_once() -> Column:
    """Whether an event needed only one attempt since it was put or replayed: if it succeeded after a replay, the replay
    is still the last entry of the history."""
    from pyspark.sql import functions as f

    last = f.get("history", f.size("history") - 1)["outcome"]
    return (f.col("attempts") <= 1) | (f.coalesce(last, f.lit("")) == "replayed")


def _due_at() -> Column:
    """When an event was first due: waiting for its scheduled time is not latency. After a retry, available_at is the
    time of the retry; then latency counts from the last replay, or else from the put."""
    from pyspark.sql import functions as f

    replays = f.transform(f.filter("history", lambda entry: entry["outcome"] == "replayed"), lambda entry: entry["at"])
    return f.when(f.col("at_once"), f.greatest("created_at", "available_at")).otherwise(
        f.coalesce(f.array_max(replays), "created_at")
    )


def overview(table: DataFrame) -> DataFrame:
    """Numbers of events by place, state and phase, with their first and last times."""
    from pyspark.sql import functions as f

    return (
        table.where("latest")
        .groupBy("place", "state", "phase")
        .agg(
            f.count("*").alias("events"),
            f.min("created_at").alias("first_created"),
            f.max("created_at").alias("last_created"),
            f.min("available_at").alias("first_available"),
            f.max(f.greatest("created_at", "published_at", "died_at")).alias("last_change"),
        )
        .transform(_sorted("place", "state", "phase"))
    )


def volume(table: DataFrame, seconds: int = HOUR) -> DataFrame:
    """Events by type and by the time they were put, and how many of them are published or dead now."""
    from pyspark.sql import functions as f

    return (
        table.where("latest")
        .groupBy(_bin("created_at", seconds).alias("hour"), "event_type")
        .agg(
            f.count("*").alias("events"),
            f.count_if(f.col("state") == "PUBLISHED").alias("published"),
            f.count_if(f.col("state") == "DEAD").alias("dead"),
        )
        .transform(_sorted("hour", "event_type"))
    )


def throughput(table: DataFrame, seconds: int = HOUR) -> DataFrame:
    """Events that were published or died, by the time they did, with percentiles of latency."""
    from pyspark.sql import functions as f

    published = table.where("state = 'PUBLISHED'").select(f.col("published_at").alias("at"), "latency_ms")
    died = table.where("state = 'DEAD'").select(
        f.col("died_at").alias("at"), f.lit(None).cast("long").alias("latency_ms")
    )
    return (
        published.unionByName(died)
        .groupBy(_bin("at", seconds).alias("hour"))
        .agg(
            f.count("latency_ms").alias("published"),
            f.count_if(f.col("latency_ms").isNull()).alias("died"),
            *_percentiles("p50", "p99"),
        )
        .transform(_sorted("hour"))
    )


def latency(table: DataFrame) -> DataFrame:
    """Latency from due to published, by type; the row without a type is for all of them."""
    from pyspark.sql import functions as f

    return (
        table.where("state = 'PUBLISHED'")
        .rollup("event_type")
        .agg(
            f.count("*").alias("published"),
            f.count_if(~f.col("at_once")).alias("retried"),
            *_percentiles(*PERCENTILES),
            f.max("latency_ms").alias("max_ms"),
        )
        .where("published > 0")
        .transform(_sorted(f.desc("published"), f.col("event_type").asc_nulls_first()))
    )


def attempts(table: DataFrame) -> DataFrame:
    """Published and dead events by their number of attempts."""
    from pyspark.sql import functions as f

    return (
        table.where("state IN ('PUBLISHED', 'DEAD')")
        .groupBy("attempts")
        .agg(
            f.count_if(f.col("state") == "PUBLISHED").alias("published"),
            f.count_if(f.col("state") == "DEAD").alias("dead"),
        )
        .transform(_sorted("attempts"))
    )


def causes(table: DataFrame) -> DataFrame:
    """Failed attempts, grouped by the fingerprints of their errors."""
    from pyspark.sql import functions as f

    return (
        _failures(table)
        .groupBy("fingerprint")
        .agg(
            f.count("*").alias("failures"),
            f.count_distinct("event_id").alias("events"),
            f.count_if(f.col("outcome") == "retried").alias("retried"),
            f.count_if(f.col("outcome") == "expired").alias("expired"),
            f.count_if(f.col("outcome") == "died").alias("died"),
            f.min("at").alias("first_seen"),
            f.max("at").alias("last_seen"),
            f.count_distinct("event_type").alias("types"),
            f.array_join(f.sort_array(f.collect_set("event_type")), ", ").alias("event_types"),
            f.max_by("error", "at").alias("example"),
        )
        .transform(_sorted(f.desc("failures"), "fingerprint"))
    )


def dead(table: DataFrame) -> DataFrame:
    """Dead events by type and by the fingerprints of their last errors."""
    from pyspark.sql import functions as f

    return (
        _dead(table)
        .groupBy("event_type", "fingerprint")
        .agg(
            f.count("*").alias("dead"),
            f.min("died_at").alias("first_died"),
            f.max("died_at").alias("last_died"),
            f.max_by("last_error", "died_at").alias("example"),
        )
        .transform(_sorted(f.desc("dead"), "event_type", "fingerprint"))
    )


def slowest_keys(table: DataFrame) -> DataFrame:
    """The ordering and partition keys with the highest latency."""
    from pyspark.sql import functions as f

    kinds = [
        f.struct(f.lit(kind).alias("kind"), f.col(f"{kind}_key").alias("key")) for kind in ("ordering", "partition")
    ]
    return (
        table.where("state = 'PUBLISHED'")
        .select("latency_ms", "at_once", f.explode(f.array(*kinds)).alias("of"))
        .where("of.key IS NOT NULL")
        .groupBy("of.kind", "of.key")
        .agg(
            f.count("*").alias("published"),
            f.count_if(~f.col("at_once")).alias("retried"),
            *_percentiles("p50", "p99"),
            f.max("latency_ms").alias("max_ms"),
        )
        .where(f.col("published") >= MIN_EVENTS_OF_A_KEY)
        .orderBy(f.desc("p99_ms"), f.desc("published"), "kind", "key")
        .limit(MOST_KEYS)
    )


def _failures(table: DataFrame) -> DataFrame:
    """A row for each failed attempt in a history; if there is none, one for the last error."""
    from pyspark.sql import functions as f

    failed = f.filter("history", lambda entry: entry["outcome"].isin(*FAILURES) & (entry["error"] != ""))
    last_error = f.array(
        f.struct(
            f.coalesce("died_at", "published_at", "created_at").alias("at"),
            f.when(f.col("state") == "DEAD", "died").otherwise("retried").alias("outcome"),
            f.lit("").alias("by"),
            "claim",
            f.col("last_error").alias("error"),
        )
    )
    remembered = f.when(f.size(failed) > 0, failed).when(f.col("last_error").isNotNull(), last_error)
    rows = table.select("event_id", "event_type", "last_error", f.explode(remembered).alias("entry"))
    return rows.select(
        "event_id",
        "event_type",
        "entry.at",
        "entry.outcome",
        # A history keeps only the beginning of an error.
        f.when(f.startswith("last_error", "entry.error"), f.col("last_error"))
        .otherwise(f.col("entry.error"))
        .alias("error"),
        fingerprint(f.col("entry.error")).alias("fingerprint"),
        "entry.claim",
    ).dropDuplicates(["event_id", "claim", "at", "outcome"])  # a replayed event keeps its history


def _dead(table: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return table.where("latest AND state = 'DEAD'").withColumn("fingerprint", fingerprint(f.col("last_error")))


def _sorted(*by: str | Column) -> Callable[[DataFrame], DataFrame]:
    """Sorts a small table in one task; orderBy would compute it twice, to choose the boundaries of its partitions."""
    return lambda table: table.repartition(1).sortWithinPartitions(*by)


def _bin(moment: str, seconds: int) -> Column:
    from pyspark.sql import functions as f

    return f.timestamp_seconds(f.floor(f.unix_seconds(f.col(moment)) / seconds) * seconds)


def _percentiles(*names: str) -> list[Column]:
    from pyspark.sql import functions as f

    return [f.percentile_approx("latency_ms", PERCENTILES[name], ACCURACY).alias(f"{name}_ms") for name in names]


def fingerprint(text: Column) -> Column:
    """As `redbox.fingerprints.fingerprint`, computed by Spark; null for null."""
    from pyspark.sql import functions as f

    cut = f.substring(text.cast("binary"), 1, FINGERPRINTED).cast("string")
    was_cut = f.octet_length(cut) > FINGERPRINTED - LONGEST_CHARACTER
    made = f.when(was_cut, _replaced(cut, *CUT_WORD)).otherwise(cut)
    made = f.translate(made, UPPER, LOWER)
    for rule in RULES:
        made = _replaced(made, rule.pattern, rule.replacement)
    return f.when(made == "", f.lit(NO_TEXT)).otherwise(made)


def _replaced(text: Column, pattern: str, replacement: str) -> Column:
    """As `re.sub`: Java writes `$1` for the groups of a replacement."""
    from pyspark.sql import functions as f

    return f.regexp_replace(text, pattern, replacement.replace("\\", "$"))


TABLES: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "overview": overview,
    "volume": volume,
    "throughput": throughput,
    "latency": latency,
    "attempts": attempts,
    "causes": causes,
    "dead": dead,
    "slowest_keys": slowest_keys,
}


def one_job(spark: SparkSession) -> dict[str, str]:
    """Settings under which Spark runs one job for a query: adaptive execution would run one for each exchange. Without
    it, exchanges of small tables need few partitions."""
    partitions = str(spark.sparkContext.defaultParallelism)
    return {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": partitions}


def collect(tables: Mapping[str, DataFrame]) -> dict[str, pa.Table]:
    """Computes small tables in one query, since planning and starting a query takes longer than its work.

    The query is the union of all tables, each with columns of its own.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import to_arrow_schema

    own = {name: [f"{name}/{column}" for column in table.columns] for name, table in tables.items()}
    parts = [
        table.toDF(*own[name]).select(f.lit(name).alias("table"), *[f"`{column}`" for column in own[name]])
        for name, table in tables.items()
    ]
    rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts).toArrow()
    return {
        name: rows.filter(pc.field("table") == name)
        .select(own[name])
        .rename_columns(table.columns)
        .cast(to_arrow_schema(table.schema, timezone="UTC"))
        for name, table in tables.items()
    }
