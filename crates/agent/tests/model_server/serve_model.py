"""Serves a tiny model with random weights, for a test against a real model server.

serve_model.py FOLDER PORT: makes a Qwen2 of one layer in FOLDER, with a tokenizer whose words are
the 256 bytes and a few whole tool calls, some of them broken, and starts `transformers serve` with
it. Sampling from it is nonsense with tool calls in it. Needs no network. How calls are written is
what the server knows by the model's type.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.cli.transformers import main as serve

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CALLS = [
    '{"name": "Bash", "arguments": {"command": "ls kernels; date +%N"}}',
    '{"name": "Read", "arguments": {"file_path": "model.py"}}',
    '{"name": "Read", "arguments": {"path": "model.py"}}',
    '{"name": "Fly", "arguments": {"to": "the moon"}}',
    '{"name": "Write", "arguments": {"file_path": "../outside", "content": "x"}}',
    '{"name": "Bash", "arguments": "no object"}',
]
COPIES = 6
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes and calls. Encoding only ever gives bytes."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = SPECIAL + sorted(pre_tokenizers.ByteLevel.alphabet())
    for copy in range(COPIES):
        for call in CALLS:
            text = "\n" * (copy + 1) + f"<tool_call>{call}</tool_call>"
            words.append(level.pre_tokenize_str(text)[0][0])
    made = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    made.pre_tokenizer = level
    made.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    fast.chat_template = TEMPLATE
    return fast


def make(folder: Path) -> None:
    """Writes configuration, weights and tokenizer."""
    words = tokenizer()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=65536,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config.do_sample = True
    model.save_pretrained(folder)
    words.save_pretrained(folder)


def main() -> None:
    folder, port = Path(sys.argv[1]), sys.argv[2]
    make(folder)
    # The command itself, in this process: importing torch twice takes longer than all the rest.
    options = ["--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1", "--port", port]
    sys.argv = ["transformers", "serve", str(folder), *options]
    serve()


if __name__ == "__main__":
    main()
