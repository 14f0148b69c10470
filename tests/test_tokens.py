"""mini_train on tokens: byte pairs equal to those of Hugging Face's tokenizers, token files in llm.c's format, and data
that is mapped and not read at the start."""

from __future__ import annotations

import json
import re
import resource
import struct
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT, Programs

FIXTURES = ROOT / "trainer" / "tokens" / "fixtures"
SMALL = ["--model", "layers=2,hidden=32,heads=4,vocabulary=1024,sequence=16,dropout=no,gated=yes,norm=rms,"
         "learned_positions=no,biases=no,tied_embeddings=no,kv_heads=2", "--microbatch-size", "4", "--peak-gflops", "1",
         "--validation-sequences", "8", "--gemm", "packed"]


def mini_train(programs: Programs, *words: str, fails: bool = False) -> str:
    done = programs.run("mini_train", *words)
    assert (done.returncode != 0) == fails, done.stderr + done.stdout
    return done.stderr if fails else done.stdout


def losses_of(output: str) -> list[str]:
    return re.findall(r"loss (\S+)", output)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "text"
    texts = json.loads((FIXTURES / "encodings.json").read_text())["texts"]
    path.write_text("\n".join(texts * 4), encoding="utf-8")
    return path


def tokenized(programs: Programs, text: Path, tokenizer: str) -> Path:
    file = text.parent / (tokenizer + ".bin")
    mini_train(programs, "--data", str(text), "--tokenizer", str(FIXTURES / tokenizer), "--tokenize", str(file))
    return file


def ids_in(file: Path) -> np.ndarray:
    header = np.fromfile(file, "<i4", 256)
    assert (header[0], header[1]) == (20240520, 1) and not header[3:].any()
    ids = np.fromfile(file, "<u2", offset=1024)
    assert len(ids) == header[2]
    return ids


@pytest.mark.parametrize("tokenizer", ["vocab.json", "gpt2.json", "llama3.json", "led.json"])
def test_files_have_the_tokens_of_hugging_faces_package(programs: Programs, text: Path, tokenizer: str) -> None:
    package = pytest.importorskip("tokenizers", reason="the package tokenizers is missing: pip install tokenizers")
    if tokenizer == "vocab.json":
        theirs = package.Tokenizer.from_file(str(FIXTURES / "gpt2.json"))
        theirs = package.Tokenizer(theirs.model)
        theirs.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        theirs = package.Tokenizer.from_file(str(FIXTURES / tokenizer))
    expected = theirs.encode(text.read_bytes().decode(), add_special_tokens=False).ids
    assert ids_in(tokenized(programs, text, tokenizer)).tolist() == expected


def test_tokens_of_a_post_processor_are_around_each_file(programs: Programs, text: Path, tmp_path: Path) -> None:
    tokenizer = json.loads((FIXTURES / "gpt2.json").read_text())
    tokenizer["post_processor"] = {"type": "RobertaProcessing", "cls": ["<s>", 600], "sep": ["</s>", 601], "trim_offsets": True,
                                   "add_prefix_space": False}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    plain = ids_in(tokenized(programs, text, "gpt2.json")).tolist()
    mini_train(programs, "--data", f"{text},{text}", "--tokenizer", str(tmp_path), "--tokenize", str(tmp_path / "t.bin"))
    assert ids_in(tmp_path / "t.bin").tolist() == [600, *plain, 601, 600, *plain, 601]


def test_a_file_of_tokens_trains_as_its_text_does(programs: Programs, text: Path) -> None:
    tokenizer = ["--tokenizer", str(FIXTURES / "llama3.json")]
    of_text = mini_train(programs, *SMALL, "--data", str(text), *tokenizer, "--steps", "6", "--sample", "5")
    file = tokenized(programs, text, "llama3.json")
    of_file = mini_train(programs, *SMALL, "--data", str(file), *tokenizer, "--steps", "6", "--sample", "5")
    assert losses_of(of_file) == losses_of(of_text) and len(losses_of(of_file)) == 7
    assert of_file[of_file.index("# sample"):] == of_text[of_text.index("# sample"):]
    assert "baselines: tokens by frequency" in of_file


# The same global batches; each of two ranks has one half.
def test_ranks_and_a_resumed_run_draw_the_same_tokens(programs: Programs, text: Path, tmp_path: Path) -> None:
    run = [*SMALL, "--data", str(tokenized(programs, text, "gpt2.json"))]
    program = losses_of(mini_train(programs, *run, "--steps", "8", "--microbatches", "2"))
    two = losses_of(mini_train(programs, *run, "--steps", "8", "--dp", "2"))
    assert [float(loss) for loss in two] == pytest.approx([float(loss) for loss in program], abs=2e-4)
    folder = str(tmp_path / "checkpoints")
    rate = ["--min-lr", "1e-3", "--warmup", "0"]
    whole = losses_of(mini_train(programs, *run, *rate, "--steps", "8"))
    mini_train(programs, *run, *rate, "--steps", "5", "--checkpoints", folder)
    rest = losses_of(mini_train(programs, *run, *rate, "--steps", "8", "--resume", folder))
    assert rest == whole[5:]


# 4 GiB of tokens, nearly all of which are a hole in the file.
def test_a_long_file_is_not_read_at_the_start(programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "long.bin"
    count = 2**31 - 1
    with file.open("wb") as out:
        out.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
        out.truncate(1024 + 2 * count)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    output = mini_train(programs, *SMALL, "--data", str(file), "--steps", "2")
    assert len(losses_of(output)) == 3
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(before, 1 << 20)  # KiB


def test_what_does_not_fit_is_one_line(programs: Programs, text: Path) -> None:
    file = str(tokenized(programs, text, "gpt2.json"))
    small = [SMALL[0], SMALL[1].replace("1024", "300"), *SMALL[2:]]
    assert "contains token" in (error := mini_train(programs, *small, "--data", file, fails=True)) and "--vocabulary" in error
    assert error.count("\n") == 1
    error = mini_train(programs, *small, "--tokenizer", str(FIXTURES / "gpt2.json"), fails=True)
    assert "has 603 words, but the model's vocabulary is 300" in error
    error = mini_train(programs, *SMALL, "--data", file, "--sample", "3", fails=True)
    assert "allowed: with the --tokenizer that made them" in error
    error = mini_train(programs, *SMALL, "--tokenizer", str(ROOT / "README.md"), fails=True)
    assert "README.md: not JSON: " in error and "allowed: tokenizer.json" in error
