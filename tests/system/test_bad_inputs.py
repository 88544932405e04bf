#!/usr/bin/env python3
"""Bad input of every kind against the program itself, with two ranks: refused with a message that tells where and what
would be right, and with the right exit code; no crash, no hang, nothing started or left behind.

usage: test_bad_inputs.py SHERD [--table] [--sanitized]

The messages of job files are pinned to the letter elsewhere (tests/io/bad_jobs.h); here it is what a user meets.
"""
import argparse
import json
import os
import resource
import shutil
import struct
import sys
import tempfile
import time

from jobs import Failure, Job, need

GOOD = """name: tiny
model:
  family: gpt2
  vocab_size: 64
  context: 8
  d_model: 16
  n_layer: 2
  n_head: 2
data:
  train: tokens.u16
  shuffle: false
train:
  steps: 6
  global_batch: 8
  micro_batch: 2
optimizer:
  lr: 2.0e-5
run:
  timeout_s: 20
  threads: 1
"""
LIMIT_S = 20  # for a refusal; a machine may be busy, a hang lasts longer


def tokens(count, at=None, value=None):
    ids = [(7 * i) % 61 for i in range(count)]
    if at is not None:
        ids[at] = value
    return struct.pack(f"<{count}H", *ids)


def safetensors(shapes):
    """Zeros of the shapes, as the format wants them."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 4
        for length in shape:
            size *= length
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


WEIGHTS = {"wte.weight": [64, 16], "wpe.weight": [8, 16], "ln_f.weight": [16], "ln_f.bias": [16]}
for i in (0, 1):
    for name, shape in {"ln_1.weight": [16], "ln_1.bias": [16], "attn.c_attn.weight": [16, 48], "attn.c_attn.bias": [48],
                        "attn.c_proj.weight": [16, 16], "attn.c_proj.bias": [16], "ln_2.weight": [16], "ln_2.bias": [16],
                        "mlp.c_fc.weight": [16, 64], "mlp.c_fc.bias": [64], "mlp.c_proj.weight": [64, 16],
                        "mlp.c_proj.bias": [16]}.items():
        WEIGHTS[f"h.{i}.{name}"] = shape


def without(name):
    return safetensors({n: s for n, s in WEIGHTS.items() if n != name})


class Case:
    """What is wrong, what must be said (all of it), with which exit code.

    swap: replaces a text of the good job; files: {name: bytes} beside it; settings: for --set; before: refused before
    any rank starts, and not at the first touch; prepare: a function of (case runner, folder) that comes first.
    """

    def __init__(self, what, code, says, swap=None, files=None, settings=(), ranks=2, before=True, whole=None, prepare=None,
                 address_bytes=resource.RLIM_INFINITY):
        self.what, self.code, self.says = what, code, [says] if isinstance(says, str) else says
        self.swap, self.files, self.settings, self.ranks = swap, files or {}, settings, ranks
        self.before, self.whole, self.prepare, self.address_bytes = before, whole, prepare, address_bytes

    def text(self):
        if self.whole is not None:
            return self.whole
        text = GOOD.encode()
        if self.swap:
            old, new = (part if isinstance(part, bytes) else part.encode() for part in self.swap)
            need(text.count(old) == 1, f"{self.what}: the good job has no single {old}")
            text = text.replace(old, new)
        return text


def train_two_steps(bench, folder):
    with Job(bench, os.path.join(folder, "job.yaml"), 2, ["train.steps=2"], os.path.join(folder, "run")) as job:
        need(job.wait(60) == 0, f"the job to resume from failed: {job.said()}")


def damage_checkpoint(bench, folder):
    train_two_steps(bench, folder)
    with open(f"{folder}/run/checkpoints/step-00000002/rank-00001.bin", "r+b") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def cut_checkpoint(bench, folder):
    train_two_steps(bench, folder)
    os.truncate(f"{folder}/run/checkpoints/step-00000002/rank-00001.bin", 100)


def block_run_folder(_, folder):
    with open(f"{folder}/run", "w"):
        pass


def at(line, column, *rest):
    return [f"job.yaml:{line}:{column}: ", *rest]


INTEGER = "expected a whole number from 1 to 99999999"
CASES = [
    Case("unknown key", 2, at(13, 3, "train.step: unknown key; did you mean 'steps'?"), ("  steps: 6", "  step: 6")),
    Case("unknown section", 2, at(16, 1, "optimiser: unknown key; did you mean 'optimizer'?"), ("optimizer:", "optimiser:")),
    Case("unknown key in --set", 2, "--set train.stesp=9: train.stesp: unknown key; did you mean 'steps'?", settings=["train.stesp=9"]),
    Case("repeated key", 2, at(14, 3, "train.steps: repeated, first on line 13"), ("  steps: 6", "  steps: 6\n  steps: 7")),
    Case("1e3 for an integer", 2, at(13, 10, "train.steps: '1e3'", INTEGER, "write 1000"), ("steps: 6", "steps: 1e3")),
    Case("08 for an integer", 2, at(13, 10, "'08'", INTEGER), ("steps: 6", "steps: 08")),
    Case("1:30 for an integer", 2, at(13, 10, "'1:30'", INTEGER), ("steps: 6", "steps: 1:30")),
    Case("2^63", 2, at(13, 10, "9223372036854775808 is out of range", INTEGER), ("steps: 6", "steps: 9223372036854775808")),
    Case("no for a boolean", 2, at(11, 12, "data.shuffle: 'no'", "true or false"), ("shuffle: false", "shuffle: no")),
    Case("a text for a number", 2, at(17, 7, "optimizer.lr: 'high'", "a number"), ("lr: 2.0e-5", "lr: high")),
    Case("a list for an integer", 2, at(13, 10, "train.steps: a list", INTEGER), ("steps: 6", "steps: [6]")),
    Case("a number for a section", 2, at(18, 6, "a section of keys is needed"), ("run:\n  timeout_s: 20\n  threads: 1", "run: 3")),
    Case("tab as indentation", 2, at(13, 1, "a tab as indentation"), ("  steps: 6", "\tsteps: 6")),
    Case("byte order mark", 2, at(1, 1, "byte order mark"), ("name: tiny", b"\xef\xbb\xbfname: tiny")),
    Case("not UTF-8", 2, at(1, 9, "byte 0xf1 is not UTF-8"), ("tiny", b"ti\xf1y")),
    Case("alias", 2, at(13, 10, "alias '*n'; a job has no aliases"), ("steps: 6", "steps: *n")),
    Case("two documents", 2, at(21, 1, "a second document"), ("threads: 1\n", "threads: 1\n---\nname: two\n")),
    Case("empty job", 2, at(1, 1, "empty"), whole=b""),
    Case("not YAML", 2, "job.yaml:", whole=b"\0\1\2\3 binary"),
    Case("missing key", 2, ["job.yaml:", "optimizer.lr: missing"], ("  lr: 2.0e-5", "  warmup_steps: 1")),
    Case("global_batch does not divide", 2, at(14, 17, "global_batch: 7", "micro_batch 2 x ranks 2 = 4", "4 and 8"),
         ("global_batch: 8", "global_batch: 7")),
    Case("global_batch and -n", 2, ["global_batch: 8", "micro_batch 2 x ranks 3 = 6", "6 and 12"], ranks=3),
    Case("d_model and n_head", 2, "model.d_model 16 is not a multiple of model.n_head 3; the nearest that fit are 15 and 18", ("n_head: 2", "n_head: 3")),
    Case("evaluation without data", 2, "data.validation", settings=["train.evaluate_every=2"]),
    Case("a stage that is not there", 2, ["shard.stage: 4 is out of range", "from 0 to 3"], settings=["shard.stage=4"]),
    Case("a model beyond all memory", 2, ["2 ranks of ", " GiB, and this machine has ", "lower train.micro_batch"], settings=["model.d_model=1048576"]),
    Case("a limit on address space", 1, ["a rank maps ", "the limit on address space is 256 MiB", "ulimit -v unlimited"], address_bytes=256 << 20),
    Case("frozen pattern without match", 2, ["model.frozen", "nothing.*"], settings=['model.frozen=["nothing.*"]']),
    Case("no token file", 3, ["tokens.u16: cannot open the token file: No such file"], files={"tokens.u16": None}),
    Case("empty token file", 3, ["tokens.u16: empty", "needs at least 9"], files={"tokens.u16": b""}),
    Case("too short token file", 3, ["tokens.u16: 8 tokens are too few", "needs at least 9"], files={"tokens.u16": tokens(8)}),
    Case("odd token file", 3, "tokens.u16: 17 bytes are no whole number of 2-byte tokens", files={"tokens.u16": bytes(17)}),
    Case("too short validation file", 3, "val.u16: 3 tokens are too few", files={"val.u16": tokens(3)}, settings=["data.validation=val.u16"]),
    Case("bad header", 3, ["tokens.u16: bad llmc header: magic", "expected 20240520"], files={"tokens.u16": tokens(1000)},
         settings=["data.format=llmc"]),
    Case("header promises more", 3, ["bad llmc header: 900 tokens promised, the file holds 400"], settings=["data.format=llmc"],
         files={"tokens.u16": struct.pack("<256i", 20240520, 1, 900, *[0] * 253) + tokens(400)}),
    Case("format not to be guessed", 3, ["tokens.data: ", "set data.format to"], ("train: tokens.u16", "train: tokens.data"),
         files={"tokens.data": tokens(400)}),
    Case("token beyond the vocabulary", 3, ["tokens.u16: token 64 at byte 260 is not below model.vocab_size 64"], before=False,
         files={"tokens.u16": tokens(2000, 130, 64)}),
    Case("the same, one rank", 3, ["tokens.u16: token 65535 at byte 0 is not below model.vocab_size 64"], ranks=1,
         files={"tokens.u16": tokens(2000, 0, 65535)}),
    Case("the same, in validation", 3, ["val.u16: token 99 at byte 48 is not below model.vocab_size 64"],
         files={"val.u16": tokens(200, 24, 99)}, settings=["data.validation=val.u16", "train.evaluate_every=2"]),
    Case("the same, beyond what is evaluated", 0, ["training tiny"], before=False, files={"val.u16": tokens(200, 24, 99)},
         settings=["data.validation=val.u16", "train.evaluate_every=2", "train.evaluate_sequences=2"]),
    Case("no weights", 3, ["none.safetensors", "No such file"], settings=["model.init=none.safetensors"]),
    Case("weights that are no safetensors", 3, "w.safetensors: no safetensors file", files={"w.safetensors": b"nothing"},
         settings=["model.init=w.safetensors"]),
    Case("a tensor is missing", 3, ["w.safetensors does not fit the model", "h.1.mlp.c_fc.bias"],
         files={"w.safetensors": without("h.1.mlp.c_fc.bias")}, settings=["model.init=w.safetensors"]),
    Case("a tensor has another shape", 3, ["w.safetensors does not fit the model", "wpe.weight", "[7, 16]", "[8, 16]"],
         files={"w.safetensors": safetensors({**WEIGHTS, "wpe.weight": [7, 16]})}, settings=["model.init=w.safetensors"]),
    Case("numbers that are not finite", 1, ["step 2/6: loss is nan and gradient norm is nan; first in rank 0's loss, in micro-step 0", "lower optimizer.lr or set train.clip"], before=False,
         settings=["optimizer.lr=1e38", "optimizer.weight_decay=0", "train.clip=0", "run.on_nonfinite=abort"]),
    Case("resume with another seed", 3, ["step-00000002", "train.seed was 1 and is 5 now"], settings=["train.seed=5"], prepare=train_two_steps),
    Case("resume with another optimizer", 3, ["step-00000002: saved with optimizer.name: adamw, but this job has lion"], settings=["optimizer.name=lion"],
         prepare=train_two_steps),
    Case("resume from nowhere", 3, ["checkpoint.resume: there is no complete checkpoint at"], settings=["checkpoint.resume=nowhere"]),
    Case("a flipped bit in a checkpoint", 3, ["rank-00001.bin", "damaged: "], prepare=damage_checkpoint, before=False),
    Case("a checkpoint cut short", 3, ["rank-00001.bin is damaged: it has 100 bytes"], prepare=cut_checkpoint),
    Case("a file where the run folder goes", 3, ["log.dir is ", "/run is a file; a folder is needed"], prepare=block_run_folder),
    Case("no ranks", 2, "-n 0: run.ranks: 0 is out of range", ranks=0),
    Case("too many ranks", 2, "-n 100000: run.ranks: 100000 is out of range; expected a whole number from 1 to 64", ranks=100000),
]


def run(sherd, case):
    """The exit code and what was said on stderr."""
    folder = tempfile.mkdtemp(prefix="sherd-bad-")
    try:
        job_path = os.path.join(folder, "job.yaml")
        with open(job_path, "wb") as file:
            file.write(case.text())
        for name, content in {"tokens.u16": tokens(2000), **case.files}.items():
            if content is not None:
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(content)
        if case.prepare:
            case.prepare(sherd, folder)
        known = sorted(os.listdir(folder))
        os.chdir(folder)
        with Job(sherd, job_path, case.ranks, case.settings, os.path.join(folder, "run"), case.address_bytes) as job:
            began = time.monotonic()
            code = job.wait(LIMIT_S)
            said = job.said()
            check(case, code, said, folder, known)
            job.need_nothing_left(time.monotonic() + 1)
            need(time.monotonic() - began < LIMIT_S, "too late")
            return code, said.replace(folder + "/", "")
    finally:
        os.chdir("/")
        shutil.rmtree(folder)


def check(case, code, said, folder, known):
    need(code == case.code, f"exit code {code}, expected {case.code}: {said}")
    for part in case.says:
        need(part in said, f"does not say {part!r}: {said}")
    if case.before:
        need(said.startswith("sherd: ") and "training tiny" not in said and "rank 0" not in said, f"a rank was started: {said}")
        need(sorted(os.listdir(folder)) == known, f"left behind: {sorted(os.listdir(folder))}, there was {known}")
    need("Segmentation" not in said and "signal" not in said, f"a crash: {said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd")
    parser.add_argument("--sanitized", action="store_true", help="the program is one of a sanitizer, which maps terabytes")
    parser.add_argument("--table", action="store_true", help="print every case with its exit code and message")
    arguments = parser.parse_args()
    sherd, failed = os.path.abspath(arguments.sherd), 0
    if arguments.table:
        print("| case | exit | message |\n| --- | --- | --- |")
    good = Case("a good job", 0, ["training tiny", "2 ranks"], before=False)
    for case in [good, *CASES]:
        if arguments.sanitized and case.address_bytes != resource.RLIM_INFINITY:
            continue
        try:
            code, said = run(sherd, case)
            if arguments.table:
                lines = [line.removeprefix("sherd: ") for line in said.splitlines() if "training tiny" not in line and "kernels:" not in line]
                print(f"| {case.what} | {code} | {' ⏎ '.join(lines[:3]).replace('|', chr(92) + '|')} |")
        except Failure as failure:
            failed += 1
            print(f"FAILED: {case.what}: {failure}", flush=True)
    print(f"{len(CASES) + 1 - failed} held, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
