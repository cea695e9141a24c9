"""Looks at a whole box from outside and says where it contradicts itself."""

from __future__ import annotations

from typing import Any

from redbox import keys
from redbox.box import Box
from redbox.store.codec import pairs

_STATE_OF = {
    "pending": "PENDING",
    "waiting": "PENDING",
    "suspect": "PENDING",
    "claimed": "CLAIMED",
    "published": "PUBLISHED",
    "dead": "DEAD",
}


async def check_invariants(box: Box) -> list[str]:
    """Every contradiction found, in words; an empty list is a sound box. For boxes of a test: it reads all of it."""
    look = _Look(box)
    await look.read()
    return look.problems()


class _Look:
    def __init__(self, box: Box) -> None:
        self.box = box
        self.indexes: dict[str, dict[str, float]] = {}
        self.events: dict[str, dict[str, str]] = {}
        self.lines: dict[str, list[str]] = {}
        self.unique: dict[str, dict[str, float]] = {}
        self.bodies: set[str] = set()
        self.histories: dict[str, int] = {}

    async def read(self) -> None:
        store, name = self.box._store, self.box.name
        prefix = keys.prefix(name)
        found = [raw.decode() for raw in await (await store.wire()).scan(prefix.replace("[", "\\[") + "*")]
        for index in (*keys.INDEXES, "retries", "blocked", "lost"):
            self.indexes[index] = await self._zset(f"{prefix}:{index}")
        for key in found:
            kind, _, rest = key.removeprefix(f"{prefix}:").partition(":")
            if kind == "e":
                (reply,) = await store.exchange([("HGETALL", key)])
                flat = [x for pair in reply.items() for x in pair] if isinstance(reply, dict) else reply
                self.events[rest] = pairs(flat)
            elif kind == "b":
                self.bodies.add(rest)
            elif kind == "h":
                (length,) = await store.exchange([("LLEN", key)])
                self.histories[rest] = length
            elif kind == "line":
                self.lines[rest] = list(await self._zset(key))
            elif kind == "unique":
                self.unique[rest] = await self._zset(key)

    async def _zset(self, key: str) -> dict[str, float]:
        (reply,) = await self.box._store.exchange([("ZRANGE", key, 0, -1, "WITHSCORES")])
        if reply and isinstance(reply[0], list):
            return {member.decode(): float(score) for member, score in reply}
        return {reply[at].decode(): float(reply[at + 1]) for at in range(0, len(reply), 2)}

    def problems(self) -> list[str]:
        found: list[str] = []
        for event_id, event in self.events.items():
            found += [f"{event_id}: {problem}" for problem in self._event(event_id, event)]
        for index in keys.INDEXES:
            found += [f"{id_}: in {index} without an event" for id_ in self.indexes[index] if id_ not in self.events]
        found += [f"{id_}: a body without an event" for id_ in self.bodies - set(self.events)]
        found += [f"{id_}: a history without an event" for id_ in set(self.histories) - set(self.events)]
        for key, ids in self.lines.items():
            found += [f"line {key}: {problem}" for problem in self._line(key, ids)]
        for key, scores in self.unique.items():
            found += [f"unique {key}: {id_} is not live" for id_ in scores if not self._live(id_)]
        retrying = {
            id_
            for id_, event in self.events.items()
            if int(event.get("attempts", 0)) > 0 and (id_ in self.indexes["pending"] or id_ in self.indexes["suspect"])
        }
        if retrying != set(self.indexes["retries"]):
            found.append(f"retries holds {sorted(self.indexes['retries'])}, expected {sorted(retrying)}")
        found += [f"{id_}: lost" for id_ in self.indexes["lost"]]
        return found

    def _live(self, event_id: str) -> bool:
        return self.events.get(event_id, {}).get("state") in ("PENDING", "CLAIMED")

    def _event(self, event_id: str, event: dict[str, str]) -> list[str]:
        problems = []
        state, places = event.get("state"), [name for name in keys.INDEXES if event_id in self.indexes[name]]
        if len(places) != 1:
            problems.append(f"is in {places or 'no index'}, not in exactly one")
        elif _STATE_OF[places[0]] != state:
            problems.append(f"is {state}, but in {places[0]}")
        else:
            problems += self._score(event_id, event, places[0])
        if event_id not in self.bodies:
            problems.append("has no body")
        for field, wanted in (("published_at", "PUBLISHED"), ("died_at", "DEAD")):
            if (field in event) != (state == wanted):
                problems.append(f"{field} is {'set' if field in event else 'missing'} in state {state}")
        if state == "CLAIMED" and not {"claim", "claimed_at", "claimed_by"} <= event.keys():
            problems.append("is CLAIMED without a claim")
        if int(event.get("excused", 0)) > int(event.get("attempts", 0)):
            problems.append("more attempts excused than made")
        unique = event.get("unique_key")
        if unique and self._live(event_id):
            problems += self._unique(event_id, event, unique, places)
        ordering = event.get("ordering_key")
        if ordering and self._live(event_id) and event_id not in self.lines.get(ordering, []):
            problems.append("is live, but not in its line")
        if self.histories.get(event_id, 0) > 8:
            problems.append("has a history of more than 8")
        return problems

    def _score(self, event_id: str, event: dict[str, str], index: str) -> list[str]:
        field = {"published": "published_at", "dead": "died_at"}.get(index, "available_at")
        if index == "claimed":
            return []
        score = self.indexes[index][event_id]
        expiries = int(event.get("expiries", 0))
        wanted = float(event.get(field, event["created_at"] if field == "available_at" else -1))
        problems = [] if score == wanted else [f"score {score} in {index}, but {field} {wanted}"]
        if index in ("pending", "suspect") and (expiries >= 2) != (index == "suspect"):
            problems.append(f"is in {index} with {expiries} expiries")
        return problems

    def _unique(self, event_id: str, event: dict[str, str], unique: str, places: list[str]) -> list[Any]:
        score = self.unique.get(unique, {}).get(event_id)
        if event["state"] == "CLAIMED":
            wanted = float("inf")
        else:
            wanted = float(event["available_at"]) if int(event.get("attempts", 0)) > 0 else 0.0
        return [] if score == wanted else [f"unique score {score}, expected {wanted} in {places}"]

    def _line(self, key: str, ids: list[str]) -> list[str]:
        problems = [f"{id_} has no event" for id_ in ids if id_ not in self.events]
        head = self.events.get(ids[0], {})
        if head.get("state") == "DEAD" and key not in self.indexes["blocked"]:
            problems.append("a dead head, but not blocked")
        if head.get("state") != "DEAD" and key in self.indexes["blocked"]:
            problems.append("blocked by a head that is not dead")
        if ids[0] in self.indexes["waiting"]:
            problems.append("its head is waiting")
        problems += [
            f"{id_} is behind the head, but not waiting" for id_ in ids[1:] if id_ not in self.indexes["waiting"]
        ]
        return problems
