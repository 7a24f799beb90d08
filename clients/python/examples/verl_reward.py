"""A reward function for verl, judged by a Warpwright server.

    reward.custom_reward_function.path=clients/python/examples/verl_reward.py
    reward.custom_reward_function.name=compute_score

`data_source` does not matter; `ground_truth` is the name of a task that the server has, or
`extra_info["reference"]` its source. WARPWRIGHT_SERVER_URL says where the server is, and
WARPWRIGHT_SERVER_TOKEN what it asks for. Where it fails for longer than WARPWRIGHT_PATIENCE
seconds (usually 900), this raises: a step that is not made is better than one that learns from a
broken GPU.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from warpwright_client import Client


@functools.cache
def client() -> Client:
    return Client(
        os.environ.get("WARPWRIGHT_SERVER_URL", "http://127.0.0.1:8000"),
        token=os.environ.get("WARPWRIGHT_SERVER_TOKEN"),
        patience=float(os.environ.get("WARPWRIGHT_PATIENCE", "900")),
    )


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
) -> float:
    extra = extra_info or {}
    return client().score(
        solution_str,
        ground_truth,
        reference=extra.get("reference"),
        stage=extra.get("stage", "measured"),
        reward=extra.get("reward", "bounded"),
    )
