"""Rewards of single answers by OpenRLHF's own rollout of one turn: `reward_openrlhf.py URL`, the
remote reward model. Prints what came of it as JSON.

The rollout and its request are OpenRLHF's own; what stands in for vLLM answers as a script says.
"""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace

from openrlhf.utils.agent import SingleTurnAgentExecutor
from scripted_model import ANSWER, KERNEL, MODEL
from tokens import bytes_tokenizer

# With code of its own, which would be right, and which the model did not say.
PROMPT = f"Make this fast. An example:\n\n{ANSWER.format(kernel=KERNEL)}"


class Engine:
    """In place of vLLM."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    async def generate(self, prompt: list[int], *_: object, **__: object) -> SimpleNamespace:
        said = SimpleNamespace(token_ids=self.tokens, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[said])


async def main(url: str) -> None:
    tokenizer = bytes_tokenizer()
    executor = SingleTurnAgentExecutor(url)
    sampling = SimpleNamespace(max_tokens=4096, logprobs=None)
    reference = json.dumps({"task": "mine", "reference": MODEL})
    samples = [
        ("right", ANSWER.format(kernel=KERNEL)),
        ("right", ANSWER.format(kernel=KERNEL.replace("0.5f", "0.25f"))),
        ("right", "I do not know."),
        (reference, ANSWER.format(kernel=KERNEL)),
    ]
    played = [
        executor.execute(
            PROMPT, label, sampling, 16384, tokenizer, Engine(tokenizer(text + "<eos>").input_ids)
        )
        for label, text in samples
    ]
    fields = ("reward", "scores", "extra_logs")
    print(
        json.dumps(
            [{field: one[field] for field in fields} for one in await asyncio.gather(*played)]
        )
    )


asyncio.run(main(*sys.argv[1:]))
