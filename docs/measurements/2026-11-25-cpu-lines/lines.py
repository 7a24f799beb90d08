"""How many lines of some kernels are none of the others', and how long they are in words as tokens.

    tar xf kernels.tar.xz && python3 lines.py kernels      # needs the package tokenizers

Ten times a random third is held out.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

# That of crates/native/src/tokenizer.rs.
WORDS = r"[^\r\n\w]?[A-Za-z_]+|\d| ?[^\s\w]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|\w"


def words(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1024, min_frequency=2, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def main() -> None:
    kernels = [path.read_text("utf-8") for path in sorted(Path(sys.argv[1]).iterdir())]
    lengths = sorted(len(kernel.splitlines()) for kernel in kernels)
    print(f"{len(kernels)} kernels, {lengths[len(lengths) // 2]} lines the median")
    for seed in range(10):
        order = kernels[:]
        random.Random(seed).shuffle(order)
        cut = len(order) * 2 // 3
        known, held = order[:cut], order[cut:]
        lines = {line for kernel in known for line in kernel.splitlines()}
        of = [line for kernel in held for line in kernel.splitlines()]
        new = sum(line not in lines for line in of) / len(of)
        tokenizer = words(known)
        tokens = sorted(len(tokenizer.encode(kernel).ids) for kernel in held)
        print(
            f"{len(held)} of {len(kernels)} held out: {new:.3f} of their lines are new;"
            f" {tokens[len(tokens) // 2]} tokens the median, {tokens[-1]} the most,"
            f" of a vocabulary of {tokenizer.get_vocab_size()}"
        )


if __name__ == "__main__":
    main()
