"""Pauses, resumes and configures a box; its log and its doctor."""

from __future__ import annotations

from typing import Annotated, Any, Final, cast

from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter

from redbox.audit import diagnose
from redbox.box.texts.setting_texts import parse_settings, settings_json
from redbox.errors import UsageError
from redbox.service.boxes import Boxes
from redbox.service.operations.documents import (
    Findings,
    Log,
    PauseAnswer,
    PauseRequest,
    ResumeAnswer,
    ResumeRequest,
    SettingDocument,
    SettingsChange,
)
from redbox.service.operations.filters import duration, moment_of
from redbox.service.operations.routes import BoxName, get, patch, post
from redbox.settings import check_names


@get("/v1/boxes/{box:str}/log", summary="What operators did")
async def get_log(
    boxes: NamedDependency[Boxes],
    box: BoxName,
    action: Annotated[str | None, QueryParameter(max_length=64, description="Only this action.")] = None,
    who: Annotated[str | None, QueryParameter(max_length=255, description="Only of this operator.")] = None,
    since: Annotated[str | None, QueryParameter(max_length=100, description="Earliest time, or relative: 1h.")] = None,
    until: Annotated[str | None, QueryParameter(max_length=100, description="Latest time, or relative: 1h.")] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=1000, description="Maximum number of entries.")] = 100,
) -> Log:
    """As `redbox --json log`: the newest first."""
    where = await boxes.get(box)
    begin, end = await moment_of(where, "since", since), await moment_of(where, "until", until)
    return Log(entries=await where.operate.log(limit, action=action, who=who, since=begin, until=end))


@get("/v1/boxes/{box:str}/settings", summary="The settings of a box")
async def get_settings(boxes: NamedDependency[Boxes], box: BoxName) -> dict[str, SettingDocument]:
    """As `redbox --json configure`: each with its default and its meaning."""
    return cast("dict[str, SettingDocument]", settings_json(await (await boxes.get(box)).settings()))


@patch("/v1/boxes/{box:str}/settings", summary="Change settings of a box")
async def change_settings(
    boxes: NamedDependency[Boxes], operator: NamedDependency[str], box: BoxName, data: JSONBody[SettingsChange]
) -> dict[str, SettingDocument]:
    """Changes settings for all users of the box; answers all settings."""
    where = await boxes.get(box)
    if not data.changes and not data.reset:
        raise UsageError("changes: name at least one setting, here or in reset")
    check_names(data.changes)  # a name such as `who` is no argument
    texts = {name: value for name, value in data.changes.items() if isinstance(value, str)}
    values, reset = parse_settings(texts)
    numbers = {name: _number(value) for name, value in data.changes.items() if not isinstance(value, str)}
    changes: dict[str, Any] = {"reset": [*reset, *data.reset], **numbers, **values}
    settings = await where.operate.configure(who=operator, why=data.why, **changes)
    return cast("dict[str, SettingDocument]", settings_json(settings))


def _number(value: float | None) -> float | None:
    """A whole number as an int, which most settings are."""
    return int(value) if value is not None and value.is_integer() else value


@get("/v1/boxes/{box:str}/doctor", summary="What is wrong with a box and its server")
async def diagnose_box(boxes: NamedDependency[Boxes], box: BoxName) -> Findings:
    """As `redbox --json doctor`: the gravest first. A large box is audited by a sample."""
    return cast("Findings", {"findings": await diagnose(await boxes.get(box))})


@post("/v1/boxes/{box:str}/pause", status_code=200, summary="Stop all claims")
async def pause_box(
    boxes: NamedDependency[Boxes], operator: NamedDependency[str], box: BoxName, data: JSONBody[PauseRequest]
) -> PauseAnswer:
    """No relay claims events of the box, or of one ordering key, until the pause ends. Puts continue."""
    where = await boxes.get(box)
    pause = await where.operate.pause(
        who=operator,
        why=data.why,
        duration=duration("duration", data.duration),
        until=await moment_of(where, "until", data.until),
        key=data.key,
    )
    return PauseAnswer(key=data.key, who=pause.who, why=pause.why, since=pause.since, until=pause.until)


@post("/v1/boxes/{box:str}/resume", status_code=200, summary="End a pause")
async def resume_box(
    boxes: NamedDependency[Boxes], operator: NamedDependency[str], box: BoxName, data: JSONBody[ResumeRequest]
) -> ResumeAnswer:
    """Relays claim events again; with a ramp, slowly at first."""
    where = await boxes.get(box)
    resumed = await where.operate.resume(who=operator, why=data.why, ramp=duration("ramp", data.ramp), key=data.key)
    return ResumeAnswer(key=data.key, resumed=resumed)


HANDLERS: Final = [get_log, get_settings, diagnose_box, change_settings, pause_box, resume_box]
