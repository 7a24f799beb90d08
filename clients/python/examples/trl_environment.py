"""Environments for TRL's GRPOTrainer, of a Warpwright server: each rollout works in a workspace of
its own, with the server's tools, and has the judge's reward.

    pip install openenv==0.10.0
    warpwright serve --device all --suite suites/starter

    from trl_environment import KernelEnvironment, rows

    trainer = GRPOTrainer(
        model=...,
        train_dataset=Dataset.from_list(rows()),
        environment_factory=KernelEnvironment,
        args=GRPOConfig(max_tool_calling_iterations=50, ...),
    )

`WARPWRIGHT_URL` is the server (default: http://127.0.0.1:8000), `WARPWRIGHT_PATIENCE` how many
seconds an answer may take (default: 900).
"""

from __future__ import annotations

import json
import os
import urllib.request

from openenv import GenericEnvClient


def _url() -> str:
    return os.environ.get("WARPWRIGHT_URL", "http://127.0.0.1:8000").rstrip("/")


def rows() -> list[dict]:
    """A row for each task that the server has: its name, and a prompt to which `reset` adds."""
    with urllib.request.urlopen(f"{_url()}/gym/rows.jsonl") as answer:
        found = [json.loads(line) for line in answer.read().splitlines()]
    prompt = [{"role": "user", "content": ""}]
    return [{"task": row["task"], "prompt": prompt} for row in found]


class KernelEnvironment:
    """One rollout at a time. Its public methods are the model's tools."""

    def __init__(self) -> None:
        self._client = None

    def reset(self, task: str | None = None, **_: object) -> str:
        """Begins an episode; what the model is told."""
        self._close()
        patience = float(os.environ.get("WARPWRIGHT_PATIENCE", "900"))
        self._client = GenericEnvClient(base_url=_url(), message_timeout_s=patience).sync()
        self._client.connect()
        self._reward: float | None = None
        self._failed: Exception | None = None
        return self._client.reset(**({"task": task} if task else {})).observation["prompt"]

    def Bash(self, command: str) -> str:
        """
        Runs a command in the workspace's shell.

        Args:
            command: The command.

        Returns:
            What it printed.
        """
        return self._step("Bash", {"command": command})

    def Read(self, file_path: str) -> str:
        """
        Reads a file of the workspace.

        Args:
            file_path: Its path.

        Returns:
            Its lines, with numbers.
        """
        return self._step("Read", {"file_path": file_path})

    def Write(self, file_path: str, content: str) -> str:
        """
        Writes a whole file of the workspace.

        Args:
            file_path: Its path.
            content: All of it.

        Returns:
            What was done.
        """
        return self._step("Write", {"file_path": file_path, "content": content})

    def Edit(self, file_path: str, old_string: str, new_string: str) -> str:
        """
        Replaces text in a file of the workspace that was read.

        Args:
            file_path: Its path.
            old_string: Text that is there once.
            new_string: What is to be there instead.

        Returns:
            What was done.
        """
        change = {"old_string": old_string, "new_string": new_string}
        return self._step("Edit", {"file_path": file_path} | change)

    def get_reward(self) -> float:
        """
        Ends the episode: what lies in the workspace is judged.

        Raises where the server failed, at this or at an earlier call: a step that is lost is better
        than one that learns from a reward that is none.
        """
        if self._reward is None and self._failed is None:
            self._step("submit", {})
        if self._failed is not None:
            raise RuntimeError("the episode has no reward") from self._failed
        self._close()
        return self._reward

    def _step(self, tool: str, arguments: dict) -> str:
        if self._reward is not None:
            return "The episode is over."
        try:
            result = self._client.step({"tool": tool, "arguments": arguments})
        except Exception as error:
            # The trainer would tell the model of it, and go on.
            self._failed = self._failed or error
            raise
        if result.done:
            self._reward = float(result.reward)
        return result.observation["text"]

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
