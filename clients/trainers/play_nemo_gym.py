"""Rollouts by NeMo-Gym's own servers and agent, started and asked as NeMo-RL does:
`play_nemo_gym.py FOLDER SERVER MODEL`. What came of them is in FOLDER/rollouts.json, for all these
servers print.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[1] / "nemo_gym"
SERVERS = [
    "resources_servers/warpwright",
    "responses_api_agents/simple_agent",
    "responses_api_models/vllm_model",
    "environment_servers/legacy_agent",
]
# Before NeMo-Gym is loaded, which reads it.
os.environ["NEMO_GYM_EXTRA_ROOTS"] = str(CONFIGS)

from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper  # noqa: E402
from nemo_gym.rollout_collection import RolloutCollectionHelper  # noqa: E402
from omegaconf import DictConfig  # noqa: E402


def environments(folder: Path) -> str:
    """Each server of NeMo-Gym has an environment of its own, which it would install: this one."""
    for server in SERVERS:
        place = folder / "environments" / server
        place.mkdir(parents=True)
        (place / ".venv").symlink_to(sys.prefix)
    return str(folder / "environments")


async def rollouts(rows: list[dict]) -> list[dict]:
    found = []
    for task in RolloutCollectionHelper().run_examples(rows):
        _, result = await task
        found.append(result)
    return found


def main(folder: str, server: str, model: str) -> None:
    os.environ["WARPWRIGHT_URL"] = server
    with urllib.request.urlopen(f"{server}/gym/rows.jsonl") as answer:
        rows = [json.loads(line) for line in answer.read().splitlines()]
    agent = {"type": "responses_api_agents", "name": "warpwright_agent"}
    helper = RunHelper()
    helper.start(
        GlobalConfigDictParserConfig(
            dotenv_path=Path(folder) / "none.yaml",
            skip_load_from_cli=True,
            initial_global_config_dict=DictConfig(
                {
                    "config_paths": [
                        "responses_api_models/vllm_model/configs/vllm_model.yaml",
                        "resources_servers/warpwright/configs/warpwright.yaml",
                        "resources_servers/warpwright/configs/warpwright_environment_server.yaml",
                    ],
                    "policy_base_url": model,
                    "policy_api_key": "none",
                    "policy_model_name": "scripted",
                    "skip_venv_if_present": True,
                    "uv_venv_dir": environments(Path(folder)),
                }
            ),
        )
    )
    try:
        found = asyncio.run(
            rollouts([row | {"agent_ref": agent} for row in rows for _ in range(2)])
        )
    finally:
        helper.shutdown()
    (Path(folder) / "rollouts.json").write_text(json.dumps(found))


main(*sys.argv[1:])
