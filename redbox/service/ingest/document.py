"""Ingest in the OpenAPI document: its bodies, headers and answers."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import OpenAPIMediaType, Operation, Parameter, RequestBody, Schema
from litestar.openapi.spec.enums import OpenAPIType

from redbox.events import EVENT_ID_LENGTH, EVENT_TYPE_LENGTH, KEY_LENGTH, UniqueScope
from redbox.service.http.problems import MEDIA_TYPE, Problem
from redbox.service.ingest.batches import BatchReceipt
from redbox.service.ingest.cloudevents import BATCHED, STRUCTURED
from redbox.service.ingest.reading import JSON, NDJSON


class EventReceipt(msgspec.Struct, frozen=True):
    """The event is stored. `created` is false if it was stored by an earlier request with the same content."""

    event_id: str
    created: bool
    durability: str


_EXAMPLE: Final = {"event_type": "user.created", "payload": {"id": 42}}


def _name(description: str, longest: int | None = None) -> Schema:
    return Schema(type=OpenAPIType.STRING, description=description, min_length=1, max_length=longest)


def _text(description: str, longest: int | None = None) -> Schema:
    """A text that may be left out, or be null."""
    return Schema(type=[OpenAPIType.STRING, OpenAPIType.NULL], description=description, max_length=longest)


def _texts(description: str) -> Schema:
    return Schema(
        type=[OpenAPIType.OBJECT, OpenAPIType.NULL],
        additional_properties=Schema(type=OpenAPIType.STRING),
        description=description,
    )


EVENT: Final = Schema(
    type=OpenAPIType.OBJECT,
    description="An event. Unknown fields are refused.",
    required=["event_type"],
    additional_properties=False,
    properties={
        "event_type": _name("What happened: printable, without spaces.", EVENT_TYPE_LENGTH),
        "payload": Schema(description="Any JSON value; it is delivered byte for byte."),
        "payload_base64": _text("The bytes of a payload that is not JSON."),
        "content_type": _text("Content type of the payload; by default application/json.", KEY_LENGTH),
        "event_id": _text("Identifies the event; by default a new id.", EVENT_ID_LENGTH),
        "headers": _texts("Headers of the delivery."),
        "metadata": _texts("Not part of the content; not compared when an event is repeated."),
        "partition_key": _text("Partition of targets that have partitions.", KEY_LENGTH),
        "ordering_key": _text("Events with the same key are delivered in their order.", KEY_LENGTH),
        "unique_key": _text("At most one live event may hold it.", KEY_LENGTH),
        "unique_scope": Schema(enum=[*(str(scope) for scope in UniqueScope), None]),
        "delay": Schema(
            one_of=[
                Schema(type=OpenAPIType.NUMBER, minimum=0),
                Schema(type=[OpenAPIType.STRING, OpenAPIType.NULL]),
            ],
            description="Time until the event is due, in seconds or as `1h30m`.",
        ),
        "available_at": _text("When the event is due, in ISO 8601 with a zone; instead of delay."),
    },
    examples=[_EXAMPLE],
)  # fmt: skip
CLOUD_EVENT: Final = Schema(
    type=OpenAPIType.OBJECT,
    description="A CloudEvent 1.0 in the JSON format. Attributes of its own are kept as headers.",
    required=["specversion", "id", "source", "type"],
    properties={
        "specversion": Schema(type=OpenAPIType.STRING, enum=["1.0"]),
        "id": _name("Becomes the event_id."),
        "source": _name("Kept as the header cloudevents-source."),
        "type": _name("Becomes the event_type.", EVENT_TYPE_LENGTH),
        "datacontenttype": _text("By default application/json.", KEY_LENGTH),
        "data": Schema(description="The payload."),
    },
    additional_properties=True,
)


def _list(items: Schema) -> Schema:
    return Schema(type=OpenAPIType.ARRAY, items=items)


_DURABILITY: Final = Parameter(
    name="durability",
    param_in="query",
    required=False,
    description="What the answer waits for: `server` (as the server is configured), `fsync` (on disk) or `replicas=N`.",
    schema=Schema(type=OpenAPIType.STRING, pattern="^(server|fsync|replicas=[1-9][0-9]{0,2})$"),
)
_KEY: Final = Parameter(
    name="Idempotency-Key",
    param_in="header",
    required=False,
    description="The event_id of an event without one; a value that is not valid as an id is replaced by its digest.",
    schema=Schema(type=OpenAPIType.STRING, min_length=1),
)


def _body(**content: Schema) -> RequestBody:
    return RequestBody(
        required=True, content={name: OpenAPIMediaType(schema=schema) for name, schema in content.items()}
    )


@dataclass
class EventOperation(Operation):
    """An operation that takes one event."""

    def __post_init__(self) -> None:
        self.request_body = _body(**{JSON: EVENT, STRUCTURED: CLOUD_EVENT, BATCHED: _list(CLOUD_EVENT)})
        self.parameters = [*(self.parameters or ()), _DURABILITY, _KEY]


@dataclass
class BatchOperation(Operation):
    """An operation that takes a batch of events."""

    def __post_init__(self) -> None:
        lines = Schema(type=OpenAPIType.STRING, description="One JSON object per line, each an event.")
        self.request_body = _body(**{JSON: _list(EVENT), BATCHED: _list(CLOUD_EVENT), NDJSON: lines})
        self.parameters = [*(self.parameters or ()), _DURABILITY, _KEY]


_PROBLEMS: Final = {
    HTTPStatus.BAD_REQUEST: "A parameter is not valid, or the connection was closed.",
    HTTPStatus.UNAUTHORIZED: "A valid token is missing.",
    HTTPStatus.FORBIDDEN: "The token lacks the scope ingest, or a web page of another origin sent the request.",
    HTTPStatus.NOT_FOUND: "There is no such box.",
    HTTPStatus.REQUEST_TIMEOUT: "The body was not sent in time; nothing was stored.",
    HTTPStatus.CONFLICT: "The event_id belongs to an event with different content, or the unique_key is held.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body, the payload or the batch is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The content type, its charset or the content encoding is not supported.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The body or a field is not valid; the problem names the field.",
    HTTPStatus.TOO_MANY_REQUESTS: "The box is full; repeat the request after the seconds of Retry-After.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store failed, or too much is being stored; repeat the request, under the "
    "same event_id, after the seconds of Retry-After. Without Retry-After, the store must be put in order first.",
}


def _answers(**answers: tuple[Any, str]) -> dict[int, ResponseSpec]:
    found = {
        int(status): ResponseSpec(Problem, description=text, media_type=MEDIA_TYPE, generate_examples=False)
        for status, text in _PROBLEMS.items()
    }
    for status, (kind, text) in answers.items():
        found[int(HTTPStatus[status])] = ResponseSpec(kind, description=text, media_type=JSON, generate_examples=False)
    return found


_SOME: Final = (BatchReceipt, "Some events of a batch were refused; `results` says which and why.")
EVENT_RESPONSES: Final = _answers(
    ACCEPTED=(EventReceipt | BatchReceipt, "Stored; the events of a batch have a result each."), MULTI_STATUS=_SOME
)
BATCH_RESPONSES: Final = _answers(ACCEPTED=(BatchReceipt, "All events are stored."), MULTI_STATUS=_SOME)
