"""One episode by OpenEnv's own client: `play_openenv.py URL TASK right|wrong|nothing`. Prints what
came of it as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys

from openenv import GenericEnvClient
from scripted_model import KERNEL, calls


async def main(url: str, task: str, how: str) -> None:
    kernel = KERNEL if how == "right" else KERNEL.replace("0.5f", "0.25f")
    async with GenericEnvClient(base_url=url, message_timeout_s=900) as env:
        first = await env.reset(task=task)
        texts = []
        for tool, arguments in [] if how == "nothing" else calls(kernel):
            result = await env.step({"tool": tool, "arguments": arguments})
            texts.append(result.observation["text"])
            assert result.reward is None and not result.done, result
        state = await env.state()
        last = await env.step({"tool": "submit"})
    print(
        json.dumps(
            {
                "prompt": first.observation["prompt"],
                "tools": [tool["name"] for tool in first.observation["tools"]],
                "texts": texts,
                "state": state,
                "reward": last.reward,
                "done": last.done,
                "verdict": last.observation["verdict"],
            }
        )
    )


asyncio.run(main(*sys.argv[1:]))
