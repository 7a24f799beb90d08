"""Rewards of one batch by verl's own reward loop: `reward_verl.py CONFIG_OVERRIDES...`, as after
`python3 -m verl.trainer.main_ppo`. Prints what came of it as JSON.

The configuration, the Ray actors and the reward manager are verl's own, and they load
clients/python/examples/verl_reward.py. What is made here is the batch that a rollout would leave.
"""

from __future__ import annotations

import json
import sys
import tempfile

import numpy as np
import ray
import torch
from hydra import compose, initialize_config_module
from scripted_model import ANSWER, KERNEL, MODEL
from tensordict import TensorDict
from tokens import bytes_tokenizer
from transformers import PreTrainedTokenizerFast
from verl import DataProto
from verl.experimental.reward_loop import RewardLoopManager


def batch(tokenizer: PreTrainedTokenizerFast, samples: list[dict]) -> DataProto:
    """Samples as verl's rollout leaves them: prompts padded on the left, responses on the right."""
    width = max(len(sample["response"].encode()) for sample in samples) + 1

    def padded(texts: list[str], side: str, length: int) -> dict[str, torch.Tensor]:
        tokenizer.padding_side = side
        return tokenizer(texts, padding="max_length", max_length=length, return_tensors="pt")

    prompts = padded(["Make it fast."] * len(samples), "left", 32)
    responses = padded([sample["response"] + "<eos>" for sample in samples], "right", width)
    masks = [prompts["attention_mask"], responses["attention_mask"]]
    tensors = {
        "prompts": prompts["input_ids"],
        "responses": responses["input_ids"],
        "attention_mask": torch.cat(masks, dim=1),
    }
    rows = {
        "data_source": ["warpwright"] * len(samples),
        "reward_model": [{"ground_truth": sample["task"], "style": "rule"} for sample in samples],
        "extra_info": [sample["extra_info"] for sample in samples],
    }
    columns = {}
    for name, values in rows.items():
        columns[name] = np.empty(len(values), dtype=object)
        columns[name][:] = values
    return DataProto(TensorDict(tensors, batch_size=len(samples)), columns)


def main(*overrides: str) -> None:
    tokenizer = bytes_tokenizer()
    wrong = KERNEL.replace("0.5f", "0.25f")
    samples = [
        {"task": "right", "response": ANSWER.format(kernel=KERNEL), "extra_info": {}},
        {"task": "right", "response": ANSWER.format(kernel=wrong), "extra_info": {}},
        {"task": "right", "response": "I do not know.", "extra_info": {}},
        {
            "task": "mine",
            "response": ANSWER.format(kernel=KERNEL),
            "extra_info": {"reference": MODEL},
        },
    ]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", [f"actor_rollout_ref.model.path={folder}", *overrides])
        ray.init(num_cpus=2, include_dashboard=False)
        scored = RewardLoopManager(config).compute_rm_score(batch(tokenizer, samples))
        ray.shutdown()
    scores = scored.batch["rm_scores"]
    places = [len(sample["response"].encode()) for sample in samples]
    print(
        json.dumps(
            {
                "at the end": [
                    row[place].item() for row, place in zip(scores, places, strict=True)
                ],
                "in all": scores.sum(dim=1).tolist(),
                "acc": scored.non_tensor_batch["acc"].tolist(),
            }
        )
    )


main(*sys.argv[1:])
