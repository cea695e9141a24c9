"""Turns error replies and connection failures into RedboxErrors: one table decides for every error reply.

The class decides whether the error passes by itself (`redbox.errors.PASSING`): then a relay waits and tries again. A
reply that is not in the table counts as passing, because trying again loses nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from redis.exceptions import DataError, ResponseError, TimeoutError

from redbox.arguments import safe_message
from redbox.errors import (
    CODES,
    BoxPaused,
    Effect,
    ForeignKey,
    NotPermitted,
    RedboxError,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnexpectedReply,
    UsageError,
)
from redbox.events import from_ms
from redbox.store.damage import score_ms

#: The error of a script that reads a key which has moved already. Our scripts read before they write.
MOVED_UNDER_SCRIPT: Final = "non local key"
#: The error of a script that calls a command, or touches a key, that its user may not.
INTERRUPTED: Final = "ACL"
DENIED_IN_SCRIPT: Final = ("ACL failure in script", "The user executing the script")
#: Sentences that `server_facts` shares.
LOADING: Final = "is still loading its data; wait, or use another server"
LOST_MASTER: Final = "is a replica that has lost its master, or is not synchronized yet; connect to the master"


class Meaning(NamedTuple):
    """The error that a reply becomes, and its sentence: `where` is the server, `said` its reply.

    The sentence is followed by the effect, and then by `then`.
    """

    kind: type[StoreError]
    sentence: str
    effect: Effect = Effect.UNSAID
    then: str = ""


_BUSY: Final = Meaning(
    StoreUnavailable, "{where} is busy with another client's script", Effect.NOTHING_CHANGED, ", try again in a moment"
)
_MOVING: Final = Meaning(
    StoreUnavailable, "{where} is moving the slot of box {box!r}, or is down; try again in a moment"
)
# Passwords and permissions change while relays run: a relay waits until it may log in again.
_REFUSED: Final = Meaning(
    StoreUnavailable,
    "{where} refused the user or the password; both come from the URL (--url or $REDBOX_URL): check them there, and "
    "that the server has this user ({said})",
)
_NO_PASSWORD: Final = Meaning(
    StoreUnavailable,
    "{where} asks for a password, and got none: write user and password into the URL (--url or $REDBOX_URL), as in "
    "redis://USER:PASSWORD@HOST, or redis://:PASSWORD@HOST for a server without users",
)

#: First word of an error reply → its meaning.
REPLIES: Final[dict[str, Meaning]] = {
    "BUSY": _BUSY,
    "UNKILLABLE": _BUSY,
    "NOREPLICAS": Meaning(
        StoreUnavailable, "{where} has fewer replicas than min-replicas-to-write asks for", Effect.NOTHING_WRITTEN
    ),
    "LOADING": Meaning(StoreUnavailable, f"{{where}} {LOADING}"),
    "MOVED": _MOVING,
    "ASK": _MOVING,
    "TRYAGAIN": _MOVING,
    "CLUSTERDOWN": _MOVING,
    "MASTERDOWN": Meaning(StoreUnavailable, f"{{where}} {LOST_MASTER}"),
    "READONLY": Meaning(StoreUnavailable, "{where} is a read-only replica; connect to its master"),
    "UNBLOCKED": Meaning(StoreUnavailable, "{where} has changed its role; try again in a moment"),
    "NOAUTH": _NO_PASSWORD,
    "WRONGPASS": _REFUSED,
    "NOPERM": Meaning(
        NotPermitted,
        "{where} does not permit this to the user of this connection: {said}; grant the permissions of "
        "docs/permissions.md",
    ),
    INTERRUPTED: Meaning(
        NotPermitted,
        "{where} ended a script of box {box!r}, because the user of this connection may not run one of its commands "
        "({said}); `redbox doctor` names it. Grant it and repeat the call: a reading has changed nothing, and a "
        "repeated put completes the missing writes",
    ),
    "DENIED": Meaning(StoreUnavailable, "{where} accepts no connection from this machine ({said})"),
    "OOM": Meaning(StoreFull, "{where} is out of memory", Effect.NOTHING_WRITTEN, " ({said})"),
    "MISCONF": Meaning(StoreFull, "{where} is out of disk", Effect.NOTHING_WRITTEN, " ({said})"),
    "WRONGTYPE": Meaning(
        ForeignKey,
        "something else uses the key names of box {box!r} on {where}; choose another name, or run `redbox audit`: it "
        "names the key",
    ),
}
_UNKNOWN: Final = Meaning(UnexpectedReply, "{where} answered: {said}")


class _Paused(msgspec.Struct):
    """What a script says about the pause of the box; times in ms."""

    who: str = ""
    why: str = ""
    until: str = ""
    now: str = "0"


def _paused(said: str) -> BoxPaused:
    try:
        pause = msgspec.json.decode(said, type=_Paused)
    except msgspec.DecodeError:
        return BoxPaused(said)
    until = from_ms(score_ms(pause.until)) if pause.until else None
    by = f" by {pause.who}" if pause.who else ""
    lasts = f" until {until:%Y-%m-%d %H:%M:%S} UTC" if until else ""
    because = f" ({pause.why})" if pause.why else ""
    return BoxPaused(
        f"the box is paused{by}{lasts}{because}; to claim again, run `redbox resume`",
        who=pause.who,
        why=pause.why,
        until=until,
        ends_in=max(0, int(pause.until) - int(pause.now)) / 1000 if pause.until else None,
    )


def code(error: Exception) -> str:
    """The first word of an error reply; redis-py removes those that it knows from the text."""
    found = getattr(error, "status_code", None) or str(error).partition(" ")[0]
    if found in REPLIES:
        return str(found)
    text = str(error)  # such as "EXECABORT Transaction discarded because of: OOM command not allowed"
    if MOVED_UNDER_SCRIPT in text:
        return "MOVED"
    if text.startswith(DENIED_IN_SCRIPT):
        return INTERRUPTED
    return next((word for word in ("WRONGTYPE", "OOM", "MISCONF", "NOREPLICAS") if f"{word} " in text), str(found))


def translate(error: Exception, *, where: str, box: str, maybe: bool) -> RedboxError:
    """A redis-py error as a RedboxError: a sentence that says what to do, without secrets.

    `maybe`: the connection broke after something was sent that may have been carried out.
    """
    text = safe_message(error)
    word, _, rest = text.partition(" ")
    if word == "PAUSED":
        return _paused(rest)
    if word in CODES:
        return CODES[word](rest)
    if isinstance(error, DataError):
        return UsageError(f"an argument has the wrong type: {text}")
    meaning = REPLIES.get(code(error))
    if meaning is None and isinstance(error, ResponseError):
        meaning = _UNKNOWN
    if meaning is not None:
        sentence, then = (part.format(where=where, box=box, said=text) for part in (meaning.sentence, meaning.then))
        found = meaning.kind(sentence).with_effect(meaning.effect, then)
        if isinstance(found, StoreUnavailable):
            found.answered = True
        return found
    how = "did not answer in time" if isinstance(error, TimeoutError) else "cannot be reached"
    unreachable = StoreUnavailable(f"{where} {how} ({text or type(error).__name__})")
    return unreachable.with_effect(Effect.UNKNOWN if maybe else Effect.NOTHING_CHANGED)
