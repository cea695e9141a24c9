"""Conditions in SQL over the columns of events, the values of `--where`.

SQL can do more than compare columns: `java_method` calls any Java method, a subquery reads other tables. A condition
may come from a form or a ticket, so only the expressions and functions listed here are allowed. The check uses the tree
of Spark's own parser, before anything is read. A `Column` of PySpark is the caller's code, and may do anything.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from redbox.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Class names, without the package, of the nodes for operators, literals and keywords.
_NODES: Final = """
Literal UnresolvedAttribute UnresolvedExtractValue SemiStructuredExtract Alias CreateNamedStruct And Or Not EqualTo
EqualNullSafe GreaterThan GreaterThanOrEqual LessThan LessThanOrEqual In IsNull IsNotNull Like ILike RLike LikeAll
LikeAny NotLikeAll NotLikeAny Lower CaseWhen If Cast Collate UnresolvedCollation Add Subtract Multiply Divide
IntegralDivide Remainder UnaryMinus UnaryPositive BitwiseAnd BitwiseNot BitwiseOr BitwiseXor ShiftLeft ShiftRight
ShiftRightUnsigned Concat Overlay StringLocate StringTrim StringTrimLeft StringTrimRight Substring CurrentDate
CurrentTimestamp TimestampAdd TimestampDiff LambdaFunction UnresolvedNamedLambdaVariable NamedArgumentExpression
"""

#: Functions of nulls, strings, numbers, time, types, JSON, collections and hashes. None calls other code, reads a file,
#: reveals the session, or is random.
_FUNCTIONS: Final = """
between coalesce equal_null if ifnull in isnan isnotnull isnull nanvl nullif nullifzero nvl nvl2 zeroifnull

ascii base64 bit_length btrim char char_length character_length chr concat concat_ws contains decode elt encode
endswith find_in_set format_number format_string hex ilike initcap instr is_valid_utf8 lcase left len length
levenshtein like locate lower lpad ltrim mask octet_length overlay position printf regexp regexp_count regexp_extract
regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr replace reverse right rlike rpad rtrim
soundex split split_part startswith substr substring substring_index to_binary to_char to_number to_varchar translate
trim try_to_binary try_to_number ucase unbase64 unhex upper url_decode url_encode try_url_decode parse_url
try_parse_url

abs bin bit_count bit_get bround cbrt ceil ceiling conv degrees div e exp expm1 factorial floor greatest hypot least
ln log log10 log1p log2 mod negative pi pmod positive pow power radians rint round shiftleft shiftright
shiftrightunsigned sign signum sqrt try_add try_divide try_mod try_multiply try_subtract width_bucket acos acosh asin
asinh atan atan2 atanh cos cosh cot csc sec sin sinh tan tanh

add_months convert_timezone curdate current_date current_timestamp current_timezone date date_add date_diff
date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day localtimestamp make_date make_dt_interval
make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month monthname
months_between next_day now quarter second timestamp timestamp_micros timestamp_millis timestamp_seconds to_date
to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc try_make_interval
try_make_timestamp try_to_date try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday
weekofyear year

bigint binary boolean decimal double float int smallint string tinyint typeof

from_csv from_json get_json_object json_array_length json_object_keys parse_json to_json try_parse_json
try_variant_get variant_get is_variant_null

aggregate array array_append array_compact array_contains array_distinct array_except array_intersect array_join
array_max array_min array_position array_prepend array_remove array_size array_sort array_union arrays_overlap
arrays_zip cardinality element_at exists filter flatten forall get map map_concat map_contains_key map_entries
map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with named_struct reduce size slice sort_array
str_to_map struct transform transform_keys transform_values try_element_at zip_with

crc32 hash md5 sha sha1 sha2 xxhash64
"""
NODES: Final = frozenset(_NODES.split())
FUNCTIONS: Final = frozenset(_FUNCTIONS.split())

_CATALYST: Final = "org.apache.spark.sql.catalyst."
_FUNCTION: Final = "UnresolvedFunction"
_OF_A_USER: Final = frozenset({"PythonUDF", "PythonUDAF", "ScalaUDF", "CallMethodViaReflection"})
_INSTEAD: Final = (
    "use built-in functions over the columns of events (docs/pipeline.md), or call redbox.pipeline from Python with a "
    "Column of PySpark"
)


def check_condition(spark: SparkSession, where: str | Column) -> None:
    """Raises UsageError for a condition that uses more than columns, literals, and the listed operators and functions.
    One that cannot be parsed raises PySpark's error."""
    if not isinstance(where, str):
        return
    for node in _nodes(_java(spark).sessionState().sqlParser().parseExpression(where)):
        package, _, kind = str(node["class"]).rpartition(".")
        if kind == _FUNCTION:
            name = str(node["nameParts"])[1:-1].replace(", ", ".")  # "[upper]", or "[system, builtin, upper]"
            if name.lower() not in FUNCTIONS:
                raise _refusal(where, f"calls the function {name}")
        elif kind not in NODES or not package.startswith(_CATALYST):
            raise _refusal(where, f"contains {_describe(kind)}")


def select(table: DataFrame, where: str | Column) -> DataFrame:
    """The rows for which a checked condition holds; one that does not fit the columns raises PySpark's error."""
    found: Any = table.where(where)
    if isinstance(where, str):  # a session may have replaced built-in functions by its own
        plan = found._jdf.queryExecution().analyzed()  # noqa: SLF001 - PySpark does not expose trees
        if plan.nodeName() != "Filter":  # Spark has added a hidden column, such as _metadata, and a projection
            raise _refusal(where, "names a column that events do not have")
        for node in _nodes(plan.condition()):
            package, _, kind = str(node["class"]).rpartition(".")
            if kind in _OF_A_USER or not package.startswith(_CATALYST):
                raise _refusal(where, "calls a function that was registered in this session")
    selected: DataFrame = found
    return selected


def _nodes(expression: Any) -> list[dict[str, Any]]:
    """Every node of a tree, in one call: one per node would take a millisecond each."""
    nodes: list[dict[str, Any]] = json.loads(expression.toJSON())
    return nodes


def _java(spark: SparkSession) -> Any:
    classic: Any = spark
    return classic._jsparkSession  # noqa: SLF001 - PySpark has no other way to the parser


def _describe(kind: str) -> str:
    if kind in ("ScalarSubquery", "Exists", "InSubquery", "ListQuery"):
        return "a subquery"
    if kind == "ExpressionWithUnresolvedIdentifier":
        return "IDENTIFIER(...)"
    return f"an expression of the kind {kind}"


def _refusal(where: str, problem: str) -> UsageError:
    return UsageError(f"the condition {where!r} {problem}, which is not allowed; {_INSTEAD}")
