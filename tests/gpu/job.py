#!/usr/bin/env python3
"""Jobs for GPUs: NAME.yaml and random tokens in a folder.  usage: job.py NAME --folder DIR [--set KEY=VALUE]..."""
import argparse
import array
import json
import os

TOKENS = 1 << 20
# name: family, model, micro-batch, global batch
JOBS = {
    "gpt2-tiny": ("gpt2", dict(vocab_size=1000, context=16, d_model=32, n_layer=2, n_head=4), 2, 4),
    "llama-tiny": ("llama", dict(vocab_size=1000, context=16, d_model=32, n_layer=2, n_head=4, n_kv_head=2, d_ff=48), 2, 4),
    "gpt2-124m": ("gpt2", dict(vocab_size=50257, context=1024, d_model=768, n_layer=12, n_head=12), 16, 64),
    "llama-1b": ("llama", dict(vocab_size=32000, context=2048, d_model=2048, n_layer=16, n_head=32, n_kv_head=8, d_ff=8192), 4, 16),
    # Activations of a terabyte; little on the host.
    "too-large": ("gpt2", dict(vocab_size=1000, context=1024, d_model=1024, n_layer=24, n_head=16), 1000, 1000),
}


def write_tokens(path):
    state, out = 1, array.array("H")
    for _ in range(TOKENS):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out.append((state >> 8) % 900)
    with open(path, "wb") as file:
        out.tofile(file)


def write(folder, name, settings=None):
    """The path of the job file. `settings` as of --set, in place of what the job has. The run's folder is run/."""
    family, model, micro, batch = JOBS[name]
    tokens = os.path.join(os.path.dirname(os.path.abspath(folder)), "tokens.u16")  # shared by jobs beside each other
    if not os.path.exists(tokens):
        write_tokens(tokens)
    keys = {f"model.{key}": value for key, value in dict(family=family, **model).items()}
    keys |= {"name": name, "data.train": tokens, "train.steps": 20, "train.global_batch": batch, "train.micro_batch": micro,
             "train.precision": "bf16", "optimizer.lr": 1e-4, "checkpoint.every": 0, "checkpoint.resume": "never", "log.every": 1,
             "run.device": "cuda", "run.threads": 4, "run.dir": "run"}
    keys |= settings or {}
    sections = {}
    for key, value in keys.items():
        section, _, rest = key.rpartition(".")
        sections.setdefault(section, {})[rest] = value
    path = os.path.join(folder, f"{name}.yaml")
    with open(path, "w") as file:  # JSON is YAML, too
        json.dump({**sections.pop(""), **sections}, file, indent=1)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(JOBS))
    parser.add_argument("--folder", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    pairs = (text.partition("=")[::2] for text in args.set)
    print(write(args.folder, args.name, {key: json.loads(value) if value[:1].isdigit() else value for key, value in pairs}))


if __name__ == "__main__":
    main()
