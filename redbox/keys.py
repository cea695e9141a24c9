"""The name of every key of a box.

All begin with `{redbox:<box>:0}`: the braces put a whole box into one cluster slot. `lua/include/keys.lua` holds the
same names for the scripts; a test compares them.
"""

from __future__ import annotations

import re
from typing import Final

from redbox.arguments import shown
from redbox.errors import InvalidSetting

BOX_NAME_LENGTH: Final = 64
BOX_NAME: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{BOX_NAME_LENGTH - 1}}}")

#: Matches the meta key of every box of a server, for SCAN.
EVERY_META: Final = "{redbox:*:0}:meta"
_META: Final = re.compile(rb"\{redbox:([A-Za-z0-9_.-]+):0\}:meta")

#: The indexes of each state: an event's id is in exactly one of them. A test compares them with
#: `lua/include/list_indexes.lua`.
INDEXES_OF: Final = {
    "PENDING": ("pending", "waiting", "suspect"),
    "CLAIMED": ("claimed",),
    "PUBLISHED": ("published",),
    "DEAD": ("dead",),
}
INDEXES: Final = tuple(index for indexes in INDEXES_OF.values() for index in indexes)

#: Every kind of key of a box, without the prefix; "x" is any id or name.
KINDS: Final = (
    "meta", "pending", "waiting", "suspect", "claimed", "published", "dead", "retries", "blocked", "paused", "pauses",
    "lost", "counters", "limits", "alone", "log", "wake", "wait:x", "relays", "relay:x", "e:x", "b:x", "h:x", "line:x",
    "unique:x", "stream:x", "stream:x:1", "lock:x", "rates:x",
)  # fmt: skip

#: The type, as TYPE names it, of every key that a box has once; a test compares their names with KINDS.
TYPES: Final = {
    "meta": "hash", "counters": "hash", "pauses": "hash", "limits": "hash", "log": "stream", "wake": "list",
    "alone": "string",
    **dict.fromkeys((*INDEXES, "retries", "blocked", "paused", "lost", "relays"), "zset"),
}  # fmt: skip


def check_box_name(name: str) -> str:
    return _check_name("box", name)


def check_stream_name(name: str) -> str:
    """The rules for a box name apply: with a colon, stream `a:1` would have the key of batch 1 of stream `a`."""
    return _check_name("stream", name)


def _check_name(of: str, name: str) -> str:
    if not isinstance(name, str) or not BOX_NAME.fullmatch(name):
        raise InvalidSetting(f"{of} name {shown(name)}: use 1 to 64 letters, digits, '_', '.' and '-'")
    return name


def prefix(box: str) -> str:
    return f"{{redbox:{box}:0}}"


def box_of_meta(key: bytes) -> str | None:
    """The name of the box with this meta key; None for any other key."""
    match = _META.fullmatch(key)
    return match[1].decode() if match else None


def meta(box: str) -> str:
    """Hash: layout, settings, the pause of the box and its ramp, and whether ordering keys are paused."""
    return f"{prefix(box)}:meta"


def pending(box: str) -> str:
    """Sorted set: id → available_at; the events that a claim takes from."""
    return f"{prefix(box)}:pending"


def waiting(box: str) -> str:
    """Sorted set: id → available_at; PENDING events behind the head of their line."""
    return f"{prefix(box)}:waiting"


def suspect(box: str) -> str:
    """Sorted set: id → available_at; PENDING events after two expired leases in a row, claimed one at a time."""
    return f"{prefix(box)}:suspect"


def claimed(box: str) -> str:
    """Sorted set: id → end of its lease; the reaper takes expired ones from it."""
    return f"{prefix(box)}:claimed"


def published(box: str) -> str:
    """Sorted set: id → published_at."""
    return f"{prefix(box)}:published"


def dead(box: str) -> str:
    """Sorted set: id → died_at."""
    return f"{prefix(box)}:dead"


def retries(box: str) -> str:
    """Sorted set: id → available_at; PENDING events that were attempted before, for counting."""
    return f"{prefix(box)}:retries"


def blocked(box: str) -> str:
    """Sorted set: ordering key → time at which its dead head blocked its line."""
    return f"{prefix(box)}:blocked"


def paused(box: str) -> str:
    """Sorted set: paused ordering key → end of its pause, +inf until it is resumed."""
    return f"{prefix(box)}:paused"


def pauses(box: str) -> str:
    """Hash: paused ordering key → since when, by whom and why it is paused."""
    return f"{prefix(box)}:pauses"


def lost(box: str) -> str:
    """Sorted set: id in an index without a complete event → time at which it was found; normally empty."""
    return f"{prefix(box)}:lost"


def counters(box: str) -> str:
    """Hash: lifetime totals. `claimed` is also the last claim number, and `seq` the last place in a line."""
    return f"{prefix(box)}:counters"


def limits(box: str) -> str:
    """Hash: how much of the box's limits is used up, such as the state of a ramp."""
    return f"{prefix(box)}:limits"


def alone(box: str) -> str:
    """String: claim number and id of the suspect that was claimed last."""
    return f"{prefix(box)}:alone"


def log(box: str) -> str:
    """Stream, capped: the actions of operators."""
    return f"{prefix(box)}:log"


def wake(box: str) -> str:
    """List: holds a token when an idle relay should claim."""
    return f"{prefix(box)}:wake"


def wait(box: str, name: str) -> str:
    """List: holds a token, for a short time, when the wait of this name should end."""
    return f"{prefix(box)}:wait:{name}"


def relays(box: str) -> str:
    """Sorted set: relay → time of its last beat."""
    return f"{prefix(box)}:relays"


def relay(box: str, name: str) -> str:
    """Hash: the fields of a relay's last beat."""
    return f"{prefix(box)}:relay:{name}"


def event(box: str, event_id: str) -> str:
    """Hash: the state, and all fields that scripts and filters use. Without available_at, created_at counts."""
    return f"{prefix(box)}:e:{event_id}"


def body(box: str, event_id: str) -> str:
    """String: the immutable part, payload included."""
    return f"{prefix(box)}:b:{event_id}"


def history(box: str, event_id: str) -> str:
    """List: the last attempts."""
    return f"{prefix(box)}:h:{event_id}"


def line(box: str, ordering_key: str) -> str:
    """Sorted set: id → place in the line."""
    return f"{prefix(box)}:line:{ordering_key}"


def unique(box: str, unique_key: str) -> str:
    """Sorted set: id of a live event → 0 (never attempted), available_at (waiting for its retry) or +inf (CLAIMED)."""
    return f"{prefix(box)}:unique:{unique_key}"


def stream(box: str, name: str) -> str:
    """Hash: the owner of a stream that drains the box, and its last cut and last settled batch."""
    return f"{prefix(box)}:stream:{check_stream_name(name)}"


def batch(box: str, name: str, number: int) -> str:
    """Sorted set: id → claim number; the members of a stream's batch that are not settled yet."""
    return f"{stream(box, name)}:{number}"


def lock(box: str, job: str) -> str:
    """String: the token of the process that does a job, which one process does at a time."""
    return f"{prefix(box)}:lock:{job}"


def rates(box: str, step: int | str) -> str:
    """Hash, a ring: slot → totals at its last sample, and its latencies; one slot per `step` seconds, 10 or 60."""
    return f"{prefix(box)}:rates:{step}"
