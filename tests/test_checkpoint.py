"""The trainer's files against their formats: a safetensors reader of a few lines, Hugging Face's own if it is
installed, the manifest as the docs define it, and GPT-2's names and layouts as in transformers.

tests/checkpoint_dump writes the files, and reads files that are written here.
"""

from __future__ import annotations

import json
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from conftest import Programs

LAYERS, HIDDEN, WORDS, POSITIONS = 2, 8, 11, 5
Arrays = dict[str, np.ndarray]


def ours() -> dict[str, tuple[int, ...]]:
    """Parameters in our order and shapes: matrices are [outputs, inputs]."""
    h = HIDDEN
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (WORDS, h), "wpe.weight": (POSITIONS, h)}
    for layer in range(LAYERS):
        of_layer = {
            "ln_1.weight": (h,),
            "ln_1.bias": (h,),
            "attn.c_attn.weight": (3 * h, h),
            "attn.c_attn.bias": (3 * h,),
            "attn.c_proj.weight": (h, h),
            "attn.c_proj.bias": (h,),
            "ln_2.weight": (h,),
            "ln_2.bias": (h,),
            "mlp.c_fc.weight": (4 * h, h),
            "mlp.c_fc.bias": (4 * h,),
            "mlp.c_proj.weight": (h, 4 * h),
            "mlp.c_proj.bias": (h,),
        }
        shapes |= {f"h.{layer}.{name}": shape for name, shape in of_layer.items()}
    return shapes | {"ln_f.weight": (h,), "ln_f.bias": (h,)}


def known(name: str, shift: int = 0) -> np.ndarray:
    """Values that the program writes into a parameter."""
    shape = ours()[name]
    first = list(ours()).index(name) + shift
    return (first + np.arange(np.prod(shape)) / 1024).astype(np.float32).reshape(shape)


def theirs(name: str) -> np.ndarray:
    """The layout of Hugging Face's file: Conv1D's matrices are [inputs, outputs]."""
    is_conv1d = ".c_" in name and name.endswith(".weight")
    return known(name).T if is_conv1d else known(name)


def as_f32(raw: bytes, dtype: str) -> np.ndarray:
    if dtype == "BF16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float32)


def encoded(array: np.ndarray, dtype: str) -> bytes:
    if dtype != "BF16":
        return array.astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()  # to nearest, ties to even


def read_safetensors(path: Path) -> tuple[Arrays, dict[str, str]]:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    data = raw[8 + length :]
    arrays: Arrays = {}
    end = 0
    for name, entry in header.items():
        assert entry["data_offsets"][0] == end, "tensors are contiguous"
        end = entry["data_offsets"][1]
        arrays[name] = as_f32(data[slice(*entry["data_offsets"])], entry["dtype"]).reshape(entry["shape"])
    assert end == len(data)
    return arrays, metadata


def write_safetensors(path: Path, arrays: Arrays, dtype: str = "F32") -> None:
    """Written as plainly as the format allows: no alignment, no metadata, reverse order."""
    header, data = {}, b""
    for name, array in reversed(arrays.items()):
        raw = encoded(array, dtype)
        header[name] = {"shape": list(array.shape), "dtype": dtype, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, indent=1).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture(scope="module")
def program(programs: Programs) -> Path:
    path = programs.folder.parent / "tests" / "checkpoint_dump"
    assert path.exists(), f"{path} is not built: build the target tests_all"
    return path


def run(program: Path, *words: str | Path, fails: bool = False) -> str:
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


@pytest.fixture(scope="module")
def written(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    run(program, "write", folder)
    return folder


def test_the_manifest_tells_where_every_element_is(written: Path) -> None:
    pointer, pointer_sum = (written / "run" / "latest").read_text().split()
    assert pointer == "step-00000007" and int(pointer_sum, 16) == zlib.crc32(pointer.encode())
    folder = written / "run" / pointer
    text = (folder / "manifest.json").read_text()
    manifest = json.loads(text)
    assert manifest["format"] == "lockstep-checkpoint" and manifest["version"] == 1
    assert (manifest["step"], manifest["model"], manifest["integers"]) == (7, {"layers": 2}, {"tokens_seen": 12345})
    assert (manifest["layout"], manifest["reals"]) == ({"dp": "3"}, {"loss_scale": 65536.0})
    assert int(manifest["crc32"], 16) == zlib.crc32(text[: text.rindex(',\n"crc32"')].encode())

    whole = {name: np.full(int(np.prod(shape)), np.nan) for name, shape in manifest["tensors"].items()}
    assert {file.name for file in folder.iterdir()} == {f["name"] for f in manifest["files"]} | {"manifest.json"}
    for file in manifest["files"]:
        raw = (folder / file["name"]).read_bytes()
        assert (len(raw), zlib.crc32(raw)) == (file["bytes"], int(file["crc32"], 16))
        arrays, _ = read_safetensors(folder / file["name"])
        assert arrays.keys() == file["runs"].keys()
        for name, runs in file["runs"].items():
            at = 0
            for begin, count, *row in runs:
                stride, times = row or (0, 1)
                for k in range(times):
                    part = slice(begin + k * stride, begin + k * stride + count)
                    assert np.isnan(whole[name][part]).all(), "an element is there twice"
                    whole[name][part] = arrays[name][at : at + count]
                    at += count
            assert at == arrays[name].size
    shifts = {"master": 0, "first_moment": 1000, "second_moment": 2000}
    assert whole.keys() == {f"{state}.{name}" for state in shifts for name in ours()}
    for state, shift in shifts.items():
        for name, shape in ours().items():
            assert tuple(manifest["tensors"][f"{state}.{name}"]) == shape
            np.testing.assert_array_equal(whole[f"{state}.{name}"], known(name, shift).ravel())


def test_the_export_is_as_hugging_face_has_it(written: Path) -> None:
    arrays, metadata = read_safetensors(written / "model")
    assert metadata == {"format": "pt"}
    assert arrays.keys() == ours().keys()
    assert struct.unpack("<Q", (written / "model").read_bytes()[:8])[0] % 8 == 0, "data begin at multiples of 8"
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, theirs(name))


def test_hugging_faces_own_reader_agrees(written: Path) -> None:
    safetensors = pytest.importorskip("safetensors", reason="the package safetensors is missing: pip install safetensors")
    own, _ = read_safetensors(written / "model")
    tensors = dict(safetensors.deserialize((written / "model").read_bytes()))
    assert tensors.keys() == own.keys()
    for name, tensor in tensors.items():
        assert tensor["dtype"] == "F32"
        np.testing.assert_array_equal(as_f32(bytes(tensor["data"]), tensor["dtype"]).reshape(tensor["shape"]), own[name])


def test_what_hugging_face_writes_is_read(program: Path, tmp_path: Path) -> None:
    numpy_writer = pytest.importorskip(
        "safetensors.numpy", reason="the package safetensors is missing: pip install safetensors"
    )
    arrays = {name: np.ascontiguousarray(theirs(name)) for name in ours()}
    numpy_writer.save_file(arrays, str(tmp_path / "theirs"), metadata={"format": "pt"})
    run(program, "read", tmp_path / "theirs", tmp_path / "again")
    again, _ = read_safetensors(tmp_path / "again")
    for name in ours():
        np.testing.assert_array_equal(again[name], arrays[name])


@pytest.mark.parametrize("prefix", ["", "transformer."])
@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_files_of_others_are_read(program: Path, tmp_path: Path, prefix: str, dtype: str) -> None:
    arrays = {prefix + name: theirs(name) for name in ours()}
    for layer in range(LAYERS):  # masks, which older files have
        arrays[f"{prefix}h.{layer}.attn.bias"] = np.tril(np.ones((1, 1, POSITIONS, POSITIONS)))
    arrays["lm_head.weight"] = theirs("wte.weight")
    write_safetensors(tmp_path / "theirs", arrays, dtype)
    run(program, "read", tmp_path / "theirs", tmp_path / "again")
    rounded, _ = read_safetensors(tmp_path / "theirs")
    again, _ = read_safetensors(tmp_path / "again")
    for name in ours():
        np.testing.assert_array_equal(again[name], rounded[prefix + name])


def test_a_missing_tensor_is_refused_in_one_line(program: Path, tmp_path: Path) -> None:
    arrays = {name: theirs(name) for name in ours() if name != "h.1.mlp.c_fc.bias"}
    write_safetensors(tmp_path / "theirs", arrays)
    error = run(program, "read", tmp_path / "theirs", tmp_path / "again", fails=True)
    assert error == f'{tmp_path}/theirs has no tensor "h.1.mlp.c_fc.bias" or "transformer.h.1.mlp.c_fc.bias"\n'
    assert not (tmp_path / "again").exists()
