#!/usr/bin/env python3
"""Checkpoints that `sherd train` writes are what docs/CHECKPOINT.md says: read_checkpoint.py, which follows the document
alone, reads every byte of them, and finds the parameters that `sherd checkpoint export` writes, bit for bit.

usage: test_checkpoint_document.py SHERD
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

from jobs import LAUNCHER_VARIABLES, Failure, need, write_files
from read_checkpoint import Damage, read_checkpoint

STATES = {"adamw": {"exp_avg", "exp_avg_sq"}, "lion": {"exp_avg"}}
# Ranks and settings; what of the checkpoint is to be seen.
JOBS = [
    (1, ["checkpoint.compression=0"], {"ways": {"none"}}),
    (2, ["shard.stage=3", "checkpoint.compression=1"], {"states": STATES["adamw"]}),
    (3, ["train.global_batch=6", "train.micro_batch=1", "shard.stage=1", "checkpoint.compression=9"], {}),
    (2, ["shard.stage=0", "optimizer.state_dtype=int8"], {"state_dtype": "int8"}),
    (2, ["train.precision=bf16", "shard.stage=3", "model.frozen=[\"wpe.*\"]"], {"dtypes": {"fp32", "bf16"}}),
    (4, ["train.precision=fp16", "shard.stage=2", "shard.replicas=2", "model.frozen=[\"wpe.*\"]"], {"dtypes": {"fp32", "fp16"}, "scale": True}),
    (2, ["optimizer.name=adafactor"], {}),
    (2, ["model.d_model=128", "shard.stage=2"], {"ways": {"none", "rotate-planes-zstd", 0, 1, 2}}),
]


def run(*command):
    environment = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    need(done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stderr}")


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    return {name: data[begin + about["data_offsets"][0]:begin + about["data_offsets"][1]]
            for name, about in header.items() if name != "__metadata__"}


def widen(dtype, data):
    """16 bits as float32, by way of Python's own doubles."""
    if dtype == "fp32":
        return bytes(data)
    if dtype == "bf16":
        return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return struct.pack(f"<{len(data) // 2}f", *struct.unpack(f"<{len(data) // 2}e", data))


def check(manifest, exported, ranks, expected):
    tensors = manifest["tensors"]
    need(manifest["step"] == 5 and [t["name"] for t in tensors] == list(exported), "other tensors were exported")
    for tensor in tensors:
        data = widen(tensor["parameter"]["dtype"], tensor["parameter"]["data"])
        need(data == exported[tensor["name"]], f"{tensor['name']}: other values were exported")
        need(not (tensor["frozen"] and tensor["states"]), f"{tensor['name']} is frozen, and has states")
    replicas = manifest["mesh"]["replicas"]
    need(manifest["mesh"]["ranks"] * replicas == ranks, f"{manifest['mesh']} of {ranks} ranks")
    need(manifest["optimizer"]["state_dtype"] == expected.get("state_dtype", "fp32"), "states of another type")
    need({t["parameter"]["dtype"] for t in tensors} == expected.get("dtypes", {"fp32"}), "parameters of another type")
    need(("loss_scale" in manifest) == expected.get("scale", False), "a loss scale, or none")
    need(expected.get("ways", set()) <= manifest["ways"], f"blocks and planes stored in ways {manifest['ways']} only")
    if "states" in expected:
        need(all(set(t["states"]) == expected["states"] for t in tensors), "other states")
    moved = [value for t in tensors for value in t["states"].values() if any(value["data"])]
    need(len(moved) > 3, "the states have nothing in them")


def damage(folder):
    """The reader is one that notices: a flipped bit in every file."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        with open(path, "rb") as file:
            good = file.read()
        for at in (0, 17, len(good) // 3, len(good) // 2, len(good) - 20, len(good) - 1):
            bad = bytearray(good)
            bad[at] ^= 4
            with open(path, "wb") as file:
                file.write(bad)
            try:
                read_checkpoint(folder)
            except Damage:
                continue
            raise Failure(f"byte {at} of {name} is damaged, and nobody noticed")
        with open(path, "wb") as file:
            file.write(good)
    read_checkpoint(folder)


def main():
    sherd = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        job = write_files(folder)
        for i, (ranks, settings, expected) in enumerate(JOBS):
            run_dir, to = os.path.join(folder, f"run-{i}"), os.path.join(folder, f"{i}.safetensors")
            settings = ["train.steps=5", "checkpoint.every=5", f"run.dir={run_dir}", *settings]
            run(sherd, "train", job, "-n", str(ranks), *(word for s in settings for word in ("--set", s)))
            run(sherd, "checkpoint", "export", os.path.join(run_dir, "checkpoints"), to)
            checkpoint = os.path.join(run_dir, "checkpoints", "step-00000005")
            manifest = read_checkpoint(checkpoint)
            check(manifest, read_safetensors(to), ranks, expected)
            if i == 1:
                damage(checkpoint)
            ratio = manifest["bytes"]["raw"] / manifest["bytes"]["stored"]
            print(f"{ranks} ranks, {' '.join(settings[3:])}: {len(manifest['tensors'])} tensors, raw / stored {ratio:.3f}")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
