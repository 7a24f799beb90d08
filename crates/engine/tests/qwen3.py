"""The oracle of the engine's tests: transformers' Qwen3.

``write FOLDER`` makes a checkpoint with random weights, and beside it what transformers computes with it
on some rows, and what one step of torch's own optimiser makes of it. ``logits FOLDER`` reads a checkpoint
and writes its logits on the rows that lie there; ``adapted FOLDER`` reads adapters and the model that they
are for, adds them to its matrices and does the same. ``large FOLDER`` makes a checkpoint of Qwen3-0.6B's
shape, in bfloat16 as that is, and its logits beside it.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

STEP = {"lr": 1e-3, "adam_betas": [0.9, 0.95], "weight_decay": 0.1, "max_grad_norm": 0.5}


def config() -> Qwen3Config:
    return Qwen3Config(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=False,
        max_position_embeddings=128,
    )


def rows() -> list[dict[str, list[int]]]:
    generator = torch.Generator().manual_seed(3)
    made = []
    for length in (17, 2, 40):
        ids = torch.randint(0, 61, (length,), generator=generator).tolist()
        made.append({"ids": ids, "actions": list(range(1 + length // 3, length))})
    return made


def logprobs(model: Qwen3ForCausalLM, row: dict[str, list[int]]) -> torch.Tensor:
    logits = model(torch.tensor([row["ids"]])).logits[0]
    return logits.log_softmax(-1)


def write(folder: Path) -> None:
    torch.manual_seed(11)
    model = Qwen3ForCausalLM(config()).float()
    with torch.no_grad():
        for parameter in model.parameters():
            # Norms begin as ones, which would hide that they are left out.
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    expected = {}
    total = 0.0
    actions = sum(len(row["actions"]) for row in rows())
    for number, row in enumerate(rows()):
        given = logprobs(model, row)
        before = torch.tensor(row["actions"]) - 1
        chosen = torch.tensor(row["ids"])[row["actions"]]
        picked = given[before, chosen]
        total = total - picked.sum() / actions
        expected[f"logprobs.{number}"] = picked.detach().clone()
        entropy = -(given.exp() * given).sum(-1)[before]
        expected[f"entropies.{number}"] = entropy.detach().clone()
    expected["loss"] = total.detach().clone()
    total.backward()
    expected["norm"] = torch.nn.utils.clip_grad_norm_(model.parameters(), STEP["max_grad_norm"])
    groups = [
        {
            "params": [p for p in model.parameters() if p.dim() > 1],
            "weight_decay": STEP["weight_decay"],
        },
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    torch.optim.AdamW(groups, lr=STEP["lr"], betas=tuple(STEP["adam_betas"])).step()
    for name, parameter in model.named_parameters():
        expected[f"stepped.{name}"] = parameter.detach().clone()
    save_file(expected, folder / "expected.safetensors")
    (folder / "rows.json").write_text(json.dumps({"rows": rows(), "step": STEP}))


def large(folder: Path) -> None:
    torch.manual_seed(12)
    shape = Qwen3Config(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        tie_word_embeddings=True,
        max_position_embeddings=40960,
    )
    Qwen3ForCausalLM(shape).to(torch.bfloat16).save_pretrained(folder)
    (folder / "rows.json").write_text(json.dumps({"rows": rows(), "step": STEP}))
    logits(folder)


def logits(folder: Path) -> None:
    tell(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), folder)


def adapted(folder: Path) -> None:
    told = json.loads((folder / "adapter_config.json").read_text())
    base = told["base_model_name_or_path"]
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    changes = load_file(folder / "adapter_model.safetensors")
    with torch.no_grad():
        for name, module in model.named_modules():
            if name.rsplit(".", 1)[-1] in told["target_modules"]:
                stem = f"base_model.model.{name}.lora_"
                a, b = (changes.pop(f"{stem}{side}.weight") for side in "AB")
                module.weight += told["lora_alpha"] / told["r"] * (b @ a)
    assert not changes, list(changes)
    tell(model, folder)


def tell(model: Qwen3ForCausalLM, folder: Path) -> None:
    found = {}
    with torch.no_grad():
        for number, row in enumerate(rows()):
            before = torch.tensor(row["actions"]) - 1
            chosen = torch.tensor(row["ids"])[row["actions"]]
            found[f"logprobs.{number}"] = logprobs(model, row)[before, chosen].clone()
    save_file(found, folder / "found.safetensors")


if __name__ == "__main__":
    ways = {"write": write, "logits": logits, "adapted": adapted, "large": large}
    ways[sys.argv[1]](Path(sys.argv[2]))
