#!/usr/bin/env python3
"""GPT-2 124M (configs/gpt2-124m.yaml) on random tokens: how fast the whole program is, and where the time goes.

usage: bench_gpt2.py SHERD CONFIG [--steps N] [--context N] [--precision fp32,bf16]

Runs `micro_batch: 4`, `global_batch: 8` at stage 3 with 2 ranks of 1 thread and with 1 rank of 2 threads, in each
precision, and prints a table.  Tokens/s are those of the last step; shares and GFLOP/s are over all steps of rank 0: a short run, so its first
steps, which touch memory for the first time, count.  Needs about 3 GB of memory and, for the checkpoint at the end,
1.5 GB in the temporary folder.
"""
import argparse
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

from jobs import LAUNCHER_VARIABLES


def write_tokens(path, count):
    ids = random.Random(1).choices(range(50257), k=count)
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253) + struct.pack(f"<{count}H", *ids))


def run(arguments, folder, precision, ranks, threads):
    tokens, run_dir = os.path.join(folder, "tokens.bin"), os.path.join(folder, f"run-{precision}-{ranks}x{threads}")
    settings = {"data.train": tokens, "data.validation": "null", "train.steps": arguments.steps, "train.global_batch": 8,
                "train.micro_batch": 4, "train.evaluate_every": 0, "train.precision": precision, "model.context": arguments.context, "shard.stage": 3,
                "optimizer.warmup_steps": 0, "checkpoint.every": 0, "run.dir": run_dir, "run.threads": threads}
    command = [arguments.sherd, "train", arguments.config, "-n", str(ranks)]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    environment = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {done.stderr}")
    with open(os.path.join(run_dir, "metrics.jsonl")) as file:
        rows = [json.loads(line) for line in file]
    spent = re.search(r"([\d.]+)% computing \(([\d.]+)% in products, at ([\d.]+) GFLOP/s\), ([\d.]+)% waiting", done.stderr)
    if not spent:
        sys.exit(f"no line tells where the time went: {done.stderr}")
    last = rows[-1]
    exposed = 100 * last["exposed_comm_ms"] / last["step_ms"]
    print(f"| {precision} | {ranks} x {threads} | {last['tokens_per_s']:.0f} | {last['step_ms']:.0f} | {spent[2]} | {spent[3]} | {exposed:.2f} | "
          f"{100 * last['optimizer_ms'] / last['step_ms']:.1f} | {last['peak_bytes'] / 2**20:.0f} |", flush=True)
    if precision == "fp32" and float(spent[2]) < 60:
        print(f"products are {spent[2]} % of the step, less than 60 %")
    return last["tokens_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd", type=os.path.abspath)
    parser.add_argument("config", type=os.path.abspath)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--precision", type=lambda text: text.split(","), default=["fp32", "bf16"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sherd-bench-") as folder:
        write_tokens(os.path.join(folder, "tokens.bin"), 8 * arguments.context * (arguments.steps + 2))
        print("| precision | ranks x threads | tokens/s, last step | ms, last step | % in products | GFLOP/s of products, a rank | "
              "% exposed communication, last step | % optimizer, last step | MiB planned, a rank |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        first, ratios = arguments.precision[0], []
        for ranks, threads in ((2, 1), (1, 2)):
            speeds = {p: run(arguments, folder, p, ranks, threads) for p in arguments.precision}
            ratios += [f"{ranks} x {threads}: {p} is {speeds[p] / speeds[first]:.2f} times as fast as {first}"
                       for p in arguments.precision[1:]]
        print("\n".join(ratios))


if __name__ == "__main__":
    main()
