#!/usr/bin/env python3
"""Writes trainer/tokens/fixtures/: two small tokenizers that Hugging Face's package tokenizers trains on the texts below, one that cuts
words as GPT-2 does (as tokenizer.json, and as vocab.json with merges.txt) and one that cuts them as Llama 3 does, and what
the package makes of the texts. trainer_tokens_test holds our own reader and encoder against that.

    pip install tokenizers==0.23.3 && python3 testing/trainer/make_token_fixtures.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = Path(__file__).resolve().parents[2] / "trainer" / "tokens" / "fixtures"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|end|>", "<|endof"]

TEXTS = [
    "",
    " ",
    "a",
    "Hello, world!",
    "  two blanks before and behind  ",
    "I'm sure they'll say it's what we've got, isn't it? He'd know; you're 'right'.",
    "I'M SURE THEY'LL SAY IT'S WHAT WE'VE GOT, ISN'T IT? HE'D KNOW; YOU'RE 'RIGHT'.",
    "long s: it'\u017f, th'\u017fen; apostrophe at the end'",
    "numbers 1 12 123 1234 12345 3.14159 1,000,000 0x7f \u00bd \u0663\u0664\u0665\u0666 \u2167 1st2nd",
    "lines\nand\r\nmore\n\n\nlines \n  with blanks\n\t\ttabs\t and \u00a0 hard blanks\n   ",
    "   \n\n  \n x\n",
    "\n",
    "\r\n\r\n",
    "punctuation!!! ... --- ((())) [x] {y} a+b=c; #1 @you $5 100% ^_^ \\ / | ~ `code`\n\n!!\n",
    "def f(x):\n    return [i**2 for i in range(x)]  # squares\n\n\nclass A:\n\tpass\n",
    "Stra\u00dfe, na\u00efve caf\u00e9, \u0152uvre, \u0141\u00f3d\u017a, \u0130stanbul, \u0391\u03b8\u03ae\u03bd\u03b1, \u041c\u043e\u0441\u043a\u0432\u0430",
    "e\u0301 is e with a combining accent; Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\uff01 \uc548\ub155\ud558\uc138\uc694 \u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea emoji\U0001f680\U0001f680 \u2603\ufe0f",
    "\u2003em\u2003space\u3000ideographic\u2028line\u2029paragraph\u0085next\u200bzero width",
    "\U00010d4a\U00010d4b\u1c89 letters of Unicode 16; \U0001d7d8\U0001d7d9 digits",
    "one<|endoftext|>two <|end|> three<|endof<|endoftext|><|endoftext|>\n<|endof text|>",
    "x" * 300,
    "ab" * 150 + " " * 50 + "!" * 70 + "9" * 20,
    "\x00\x01\x7f control \x1b[0m",
    "The cat sat on the mat. The cat that sat on the mat sat there all day, and all the other cats sat around it.",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness.",
    "https://example.com/path?query=value&other=1#fragment user@example.org 2024-05-17T12:34:56Z",
]


def random_texts() -> list[str]:
    """Characters of all kinds in any order."""
    draw = random.Random(5)
    pool = (
        list("aZ09 '\n\r\t.,-s")
        + ["'s", "'T", "'ll", "\u00e9", "\u0301", "\u00a0", "\u2003", "\u3000", "\u4e16", "\u0661", "\u00bd", "\u2028", "\U0001f600", "<|end|>"]
        + [chr(draw.randrange(0xA0, 0xD7FF)) for _ in range(60)]
        + [chr(draw.randrange(0x10000, 0x1FBFF)) for _ in range(20)]
    )
    return ["".join(draw.choice(pool) for _ in range(draw.randrange(1, 40))) for _ in range(150)]


def trained(words: pre_tokenizers.PreTokenizer, size: int, *, ignore_merges: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS * 3, trainers.BpeTrainer(vocab_size=size, initial_alphabet=sorted(alphabet), show_progress=False)
    )
    return tokenizer


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    gpt2 = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), 600, ignore_merges=False)
    gpt2.model.save(str(FOLDER))  # vocab.json and merges.txt: without the added tokens
    plain = Tokenizer.from_str(gpt2.to_str())
    gpt2.add_special_tokens([AddedToken(one, normalized=False) for one in SPECIAL])
    gpt2.save(str(FOLDER / "gpt2.json"), pretty=False)
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    llama3 = trained(
        pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
        700,
        ignore_merges=True,
    )
    llama3.add_special_tokens([AddedToken(one, normalized=False) for one in SPECIAL])
    llama3.save(str(FOLDER / "llama3.json"), pretty=False)
    led = Tokenizer.from_str(plain.to_str())
    led.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    led.save(str(FOLDER / "led.json"), pretty=False)
    texts = TEXTS + random_texts()
    ids = {
        name: [one.encode(text, add_special_tokens=False).ids for text in texts]
        for name, one in (("vocab.json", plain), ("gpt2.json", gpt2), ("llama3.json", llama3), ("led.json", led))
    }
    (FOLDER / "encodings.json").write_text(
        json.dumps({"source": f"tokenizers {tokenizers.__version__}", "texts": texts, "ids": ids}, ensure_ascii=True)
        .replace('"], "ids"', '"],\n"ids"') + "\n"
    )


main()
