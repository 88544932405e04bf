#!/usr/bin/env python3
"""Saved on some ranks at some stage, resumed on others: the numbers go on as if nothing had happened, bit for bit.

usage: test_checkpoint_matrix.py SHERD [--pairs N] [--only A,B] [--ranks 1,2,3,4,8] [--seed N] [--table]

For each of several models, data and optimizers: one undisturbed run on 1 rank is the reference.  The layouts are ranks x stages,
and with replicas too.  For --pairs random ones of (saved on, resumed on), the saving job saves after every step, asynchronously, and another
job resumes from one of its checkpoints, by `resume: PATH` into a folder of its own.  All numbers in metrics.jsonl but times must be the
reference's, in both jobs, and so must the exported weights; and the last checkpoint of a resumed job must hold the same blocks, by their
checksums, as that of an undisturbed job on the same layout: optimizer states included.

The default takes seconds; --pairs 0 runs all pairs of all cases and takes hours, --pairs 40 some minutes.
"""
import argparse
import itertools
import json
import os
import random
import shutil
import string
import struct
import sys
import tempfile
import time

from checkpoints import LIMIT_S, RankFile, complete, files_of, path_of, weights
from jobs import Failure, Job, need

STEPS, BATCH = 6, 24
REPLICAS = 2
TIMES = ("_ms", "_per_s", "_ms_min", "_ms_median", "_ms_max")
VARY = {"peak_bytes", "data_ready", "slowest_rank", "cpu_cores", "host_cpu_share", "resident_bytes", "memory_bytes"}

GPT2 = """name: matrix
model: {family: gpt2, vocab_size: 259, context: 11, d_model: 21, n_layer: 2, n_head: 3$model}
data: {train: $train, validation: $folder/validation.txt, format: text$data}
train: {steps: 6, global_batch: 24, micro_batch: 1, evaluate_every: 2, evaluate_sequences: 24$train_keys}
optimizer: {lr: 3.0e-3, warmup_steps: 2, min_lr: 1.0e-4$optimizer}
"""
LLAMA = GPT2.replace("family: gpt2", "family: llama").replace("d_model: 21", "d_model: 24").replace("n_head: 3", "n_head: 4, n_kv_head: 2, d_ff: 37")
MLP = """name: matrix
model: {family: mlp, inputs: 7, outputs: 5, hidden: 33, n_layer: 2$model}
data: {train: {inputs: $folder/inputs.npy, targets: $folder/targets.npy}$data}
train: {steps: 6, global_batch: 24, micro_batch: 1$train_keys}
optimizer: {lr: 1.0e-2$optimizer}
"""


class Case:
    """A job: a template, and what comes into its places. `epoch.txt` is three steps long, so an epoch ends in the middle."""

    def __init__(self, name, template, model="", train="$folder/train.txt", data="", train_keys="", optimizer="", settings=()):
        self.name, self.settings = name, list(settings)
        self.text = string.Template(string.Template(template).safe_substitute(model=model, data=data, train=train, train_keys=train_keys, optimizer=optimizer))


CASES = [
    Case("gpt2, tied, dropout", GPT2, model=", dropout: 0.1", train_keys=", recompute: unit"),
    Case("gpt2, frozen, bf16", GPT2, model=", frozen: ['wpe*', 'h.0.*', '*.ln_2.bias']", train_keys=", precision: bf16"),
    Case("gpt2, fp16 with overflows", GPT2, train_keys=", precision: fp16, loss_scale: {initial: 524288.0, growth_interval: 1}"),
    Case("llama, untied, int8 states", LLAMA, optimizer=", state_dtype: int8"),
    Case("gpt2, untied, Muon", GPT2, model=", tied_embeddings: false", optimizer=", name: muon"),
    Case("llama, tied, Adafactor", LLAMA, model=", tied_embeddings: true", optimizer=", name: adafactor"),
    Case("gpt2, SGD without states, end of an epoch", GPT2, train="$folder/epoch.txt", optimizer=", name: sgd"),
    Case("gpt2, Lion, mixture with documents", GPT2, train="[{path: $folder/train.txt, weight: 3}, {path: $folder/few.txt, weight: 1.5}]",
         data=", document_separator: 10, attend_across_documents: false", optimizer=", name: lion"),
    Case("mlp, bf16 gradients, all frozen but the head", MLP, model=", frozen: ['layers.0.*', 'layers.1.*']", settings=["shard.reduce_dtype=bf16"]),
]


def write_data(folder):
    source = random.Random(1)
    sequences = {"train": 300, "few": 20, "epoch": 3 * BATCH, "validation": BATCH}
    for name, count in sequences.items():
        with open(f"{folder}/{name}.txt", "wb") as file:
            file.write(source.randbytes(11 * count + 1))
    write_npy(f"{folder}/inputs.npy", "f", "<f4", "(100, 7)", [source.gauss(0, 1) for _ in range(700)])
    write_npy(f"{folder}/targets.npy", "i", "<i4", "(100,)", [source.randrange(5) for _ in range(100)])


def write_npy(path, kind, dtype, shape, numbers):
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(10 + len(head) + 1) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + struct.pack(f"<{len(numbers)}{kind}", *numbers))


class Bench:
    def __init__(self, arguments, folder, case):
        self.sherd, self.case = os.path.abspath(arguments.sherd), case
        self.folder = tempfile.mkdtemp(dir=folder)
        self.job = os.path.join(self.folder, "job.yaml")
        with open(self.job, "w") as file:
            file.write(case.text.substitute(folder=folder))
        self.saved = {}

    def run(self, layout, settings):
        """A job that must succeed; returns its run folder and its numbers."""
        ranks, stage, replicas = layout
        with Job(self.sherd, self.job, ranks, [f"shard.stage={stage}", f"shard.replicas={replicas}", "train.sum_order=fixed", "run.threads=1",
                                               *self.case.settings, *settings]) as job:
            code = job.wait(LIMIT_S)
            need(code == 0, f"exit code {code}: {job.said()}")
            return job.run_dir, [numbers_of(json.loads(line)) for line in job.rows().splitlines()]

    def saving(self, layout):
        """The run folder of an undisturbed job of the layout that saved after each step, and its numbers."""
        if layout not in self.saved:
            run_dir, rows = self.run(layout, ["checkpoint.every=1", "checkpoint.keep=0"])
            found = complete(f"{run_dir}/checkpoints")
            need(found == list(range(1, STEPS + 1)), f"of {STEPS} steps saved: {found}")
            self.saved[layout] = run_dir, rows, weights(self.sherd, path_of(f"{run_dir}/checkpoints", STEPS))
        return self.saved[layout]


def numbers_of(row):
    return {key: value for key, value in row.items() if not key.endswith(TIMES) and key not in VARY}


def blocks_of(path):
    """All that a checkpoint holds, as a set: which elements of what, and their checksum."""
    return {(name, block["tensor"], block["state"], block["first"], block["count"], block["dtype"], block["xxh3"])
            for name in files_of(path) if name.startswith("rank-") for block in RankFile(os.path.join(path, name)).blocks}


def need_pair(bench, reference, first, second, step):
    run_dir, rows, final = bench.saving(first)
    _, expected_rows, expected_final = reference
    need(rows == expected_rows and final == expected_final, f"without any resuming, {first} gives other numbers: {rows} and {expected_rows}")
    resumed_dir, rows = bench.run(second, [f"checkpoint.resume={path_of(f'{run_dir}/checkpoints', step)}", "checkpoint.every=4"])
    need(rows == expected_rows[step:], f"other numbers: {rows}, not {expected_rows[step:]}")
    path = path_of(f"{resumed_dir}/checkpoints", STEPS)
    need(weights(bench.sherd, path) == expected_final, "the same losses, but other weights")
    undisturbed = path_of(f"{bench.saving(second)[0]}/checkpoints", STEPS)
    need(blocks_of(path) == blocks_of(undisturbed), "the same losses and weights, but other states")
    shutil.rmtree(resumed_dir)


def layouts(ranks):
    return [(n, stage, 1) for n in ranks for stage in (0, 1, 2, 3)], [(n, stage, REPLICAS) for n in ranks if n % REPLICAS == 0 for stage in (1, 2, 3)]


def check(arguments, folder, case, draw):
    """Returns how many pairs held."""
    bench, pairs = Bench(arguments, folder, case), []
    for group in layouts(arguments.ranks):
        every = [(a, b) for a, b in itertools.product(group, group) if a != b]
        pairs += every if not arguments.pairs else draw.sample(every, min(len(every), arguments.pairs if group[0][2] == 1 else -(-arguments.pairs // 4)))
    pairs.sort()
    references = {}
    for first, second in pairs:
        step, replicas = draw.randint(1, STEPS - 1), first[2]
        try:
            if replicas not in references:
                references[replicas] = bench.saving((1, 0, 1) if replicas == 1 else (2, 3, replicas))
            need_pair(bench, references[replicas], first, second, step)
        except Failure as failure:
            raise Failure(f"saved on {first[0]} ranks, stage {first[1]}, {first[2]} replicas, resumed at step {step} on {second[0]} ranks, "
                          f"stage {second[1]}: {failure}") from None
    shutil.rmtree(bench.folder)
    return len(pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd")
    parser.add_argument("--pairs", type=int, default=2, help="of each case; 0: all")
    parser.add_argument("--only", type=lambda text: text.split(","), help="texts of which a case's name has one")
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 3, 4, 8])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print what was done how often")
    arguments = parser.parse_args()
    draw, failed, held = random.Random(arguments.seed), 0, {}
    with tempfile.TemporaryDirectory(prefix="sherd-matrix-") as folder:
        write_data(folder)
        for case in CASES:
            if arguments.only and not any(text in case.name for text in arguments.only):
                continue
            began = time.monotonic()
            try:
                held[case.name] = check(arguments, folder, case, draw)
                print(f"{case.name}: held, {held[case.name]} pairs, {time.monotonic() - began:.1f} s", flush=True)
            except Failure as failure:
                failed += 1
                print(f"{case.name}: FAILED: {failure}", flush=True)
    if arguments.table:
        print("| model | pairs that held |\n| --- | --- |")
        for name, count in held.items():
            print(f"| {name} | {count} |")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
