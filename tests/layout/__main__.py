"""Writes `layout-1.json` again: `python -m tests.layout`."""

from __future__ import annotations

import asyncio
import json

from redbox import Box
from tests.layout.scene import NAME, STORED, build, dump


async def main() -> None:
    async with Box.open("memory:", name=NAME) as box:
        await build(box)
        STORED.write_text(json.dumps(await dump(box), indent=1, ensure_ascii=True, sort_keys=True) + "\n")


asyncio.run(main())
