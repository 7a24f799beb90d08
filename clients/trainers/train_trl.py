"""Trains with TRL's own GRPOTrainer on episodes that a server hosts: `train_trl.py FOLDER`, where
FOLDER is what the trainer writes into. Prints what came of it as JSON.

The model is one of two small layers, made here, that has learned two episodes by heart: one whose
kernel is right and one whose kernel is wrong by a factor, word for word the same up to there. What
it samples is therefore sometimes rewarded and sometimes not, and there is something to learn.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python/examples"))

import pandas as pd
import torch
from scripted_model import KERNEL, calls
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, set_seed
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import (
    get_training_chat_template,
    qwen3_instruct_2507_chat_template,
)
from trl_environment import KernelEnvironment, rows

from datasets import Dataset

TOOLS = [getattr(KernelEnvironment, name) for name in ("Bash", "Edit", "Read", "Write")]
STEPS = 3
GENERATIONS = 8


def demonstration(kernel: str, row: dict) -> tuple[list[dict], float]:
    """An episode of the script, as a conversation, and its reward."""
    environment = KernelEnvironment()
    (asked,) = row["prompt"]
    messages = [asked | {"content": asked["content"] + environment.reset(**row)}]
    for name, arguments in calls(kernel):
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        text = getattr(environment, name)(**arguments)
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "name": name, "content": text},
        ]
    messages.append({"role": "assistant", "content": "It is done."})
    return messages, environment.get_reward()


def tokenizer_of(texts: list[str]) -> PreTrainedTokenizerFast:
    """Made for these texts: with tokens of up to 32 bytes an episode is a quarter as long."""
    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pairs.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        min_frequency=1,
        max_token_length=32,
        special_tokens=["<|im_end|>", "<|endoftext|>", "<|im_start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pairs.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=pairs,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        chat_template=qwen3_instruct_2507_chat_template,
    )


def encode(tokenizer: PreTrainedTokenizerFast, episodes: list) -> dict[str, torch.Tensor]:
    """Episodes as the model reads them, with what the assistant says as labels."""
    encoded = tokenizer.apply_chat_template(
        episodes,
        tools=TOOLS,
        chat_template=get_training_chat_template(tokenizer),
        return_assistant_tokens_mask=True,
        return_dict=True,
        return_tensors="pt",
        padding=True,
    )
    labels = encoded["input_ids"].masked_fill(encoded["assistant_masks"] == 0, -100)
    return {key: encoded[key] for key in ("input_ids", "attention_mask")} | {"labels": labels}


def surprise(model: Qwen3ForCausalLM, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """How much each of these surprises the model, in nats, (episodes,)."""
    labels = batch["labels"][:, 1:]
    logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    return cross_entropy(logits.transpose(1, 2), labels, reduction="none").sum(dim=1)


def learn(model: Qwen3ForCausalLM, batch: dict[str, torch.Tensor]) -> None:
    """Has the model learn these by heart."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(300):
        nats = surprise(model, batch)
        # Where the two part, nothing better than a coin can be learned.
        if nats.mean() < math.log(2) + 0.2:
            return
        (nats.sum() / (batch["labels"] != -100).sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    raise SystemExit(f"the two episodes were not learned: {nats.tolist()} nats")


@torch.no_grad()
def preference(model: Qwen3ForCausalLM, batch: dict[str, torch.Tensor]) -> float:
    """By how many nats the right episode is likelier than the wrong one."""
    right, wrong = surprise(model, batch).tolist()
    return wrong - right


def rollouts(folder: Path) -> list[dict]:
    """What the trainer wrote of each rollout: its reward, and what tools said."""
    tables = [pd.read_parquet(path) for path in sorted((folder / "completions").iterdir())]
    return [
        {
            "step": row["step"],
            "reward": row["KernelEnvironment"],
            "told": [said["content"] for said in row["completion"] if said["role"] == "tool"],
        }
        for table in tables
        for row in table.to_dict("records")
    ]


def main(folder: str) -> None:
    set_seed(0)
    # Two would wait for each other wherever something else runs.
    torch.set_num_threads(1)
    row = next(row for row in rows() if row["task"] == "right")
    demonstrations = [
        demonstration(kernel, row) for kernel in (KERNEL, KERNEL.replace("0.5f", "0.25f"))
    ]
    episodes = [messages for messages, _ in demonstrations]
    tokenizer = tokenizer_of(
        [json.dumps(get_json_schema(tool)) for tool in TOOLS]
        + [json.dumps(messages) for messages in episodes]
        + [message["content"] for messages in episodes for message in messages]
    )
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=16384,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            tie_word_embeddings=True,
        )
    )
    batch = encode(tokenizer, episodes)
    learn(model, batch)
    preferred = preference(model, batch)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list([row] * STEPS),
        environment_factory=KernelEnvironment,
        args=GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
            log_completions=True,
            max_steps=STEPS,
            per_device_train_batch_size=GENERATIONS,
            num_generations=GENERATIONS,
            max_completion_length=4096,
            max_tool_calling_iterations=8,
            learning_rate=3e-4,
            seed=0,
        ),
    )
    trainer.train()
    changed = sum(
        not torch.equal(before[name], weight) for name, weight in model.named_parameters()
    )
    print(
        json.dumps(
            {
                "demonstrated": [reward for _, reward in demonstrations],
                "rollouts": rollouts(Path(folder)),
                "log": trainer.state.log_history,
                "preferences": [preferred, preference(model, batch)],
                "changed": changed,
                "parameters": len(before),
            }
        )
    )


main(*sys.argv[1:])
