#!/usr/bin/env python3
"""`sherd checkpoint …` from outside.  usage: checkpoint_check.py SHERD"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

SHERD = None
JOB = """name: small
model: {family: gpt2, vocab_size: 60, context: 8, d_model: 16, n_layer: 2, n_head: 2}
data: {train: train.u16, validation: validation.u16}
train: {steps: 6, global_batch: 12, micro_batch: 1, evaluate_every: 3}
optimizer: {lr: 1.0e-2}
checkpoint: {every: 3}
"""


def sherd(*args, env=None, cwd=None):
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    return subprocess.run([SHERD, *map(str, args)], capture_output=True, text=True, timeout=120, env={**clean, **(env or {})}, cwd=cwd)


def tree(folder):
    """Every file below with its contents and times."""
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            full = os.path.join(path, name)
            with open(full, "rb") as file:
                found[full] = (file.read(), os.stat(full).st_mtime_ns)
    return found


class Checkpoints(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        rng = random.Random(1)
        for name, count in (("train", 2000), ("validation", 300)):
            with open(self.path(name + ".u16"), "wb") as file:
                file.write(struct.pack(f"<{count}H", *(rng.randrange(60) for _ in range(count))))
        with open(self.path("job.yaml"), "w") as file:
            file.write(JOB)
        self.checkpoints = self.path("runs/small/checkpoints")

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def train(self, *args):
        done = sherd("train", self.path("job.yaml"), *args)
        self.assertEqual(done.returncode, 0, done.stderr)

    def ok(self, *args, **more):
        done = sherd("checkpoint", *args, **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
        return done.stdout

    def refused(self, code, said, *args):
        done = sherd("checkpoint", *args)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stdout + done.stderr)
        self.assertIn(said, done.stderr)
        return done.stderr


class Drill(Checkpoints):
    def test_restores_what_the_job_validated_and_changes_nothing(self):
        self.train("-n", "2")
        with open(self.path("runs/small/metrics.jsonl")) as file:
            loss = json.loads(file.readlines()[-1])["validation_loss"]
        before = tree(self.folder.name)
        temporary = self.path("t")
        os.mkdir(temporary)
        verdict = json.loads(self.ok("drill", self.checkpoints, "--json", env={"TMPDIR": temporary}))
        self.assertEqual((verdict["restored"], verdict["step"], verdict["ranks"], verdict["data"]), (True, 6, 2, "data.validation"))
        self.assertEqual(verdict["loss"], loss)
        self.assertEqual(verdict["targets"], 37 * 8)
        self.assertEqual(os.listdir(temporary), [])
        line = self.ok("drill", os.path.join(self.checkpoints, "step-00000003"))
        self.assertRegex(line, r"^\S+/step-00000003: restored on 2 ranks: step 3, loss \S+ over 296 targets of data.validation, \S+ s\n$")
        self.assertEqual(json.loads(self.ok("drill", self.checkpoints, "--sequences", "5", "--json"))["targets"], 5 * 8)
        self.assertEqual(tree(self.folder.name), before)

    def test_evaluates_on_what_is_there(self):
        self.train()
        os.remove(self.path("validation.u16"))
        self.assertEqual(json.loads(self.ok("drill", self.checkpoints, "--json"))["data"], "data.train")
        os.remove(self.path("train.u16"))
        verdict = json.loads(self.ok("drill", self.checkpoints, "--json"))
        self.assertEqual((verdict["data"], verdict["targets"]), ("made-up tokens", 32))

    def test_says_what_is_wrong(self):
        self.refused(3, "there is no complete checkpoint", "drill", self.folder.name)
        self.refused(3, "No such file", "drill", self.path("none"))
        self.refused(2, "no folder", "drill")
        self.refused(2, "a whole number", "drill", self.folder.name, "-n", "0")
        self.train("-n", "2")
        path = os.path.join(self.checkpoints, "step-00000006", "rank-00001.bin")
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 16]))
        self.assertIn("rank-00001.bin", self.refused(3, "not restored: ", "drill", self.checkpoints))
        done = sherd("checkpoint", "drill", self.checkpoints, "--json")
        self.assertEqual(done.returncode, 3)
        self.assertFalse(json.loads(done.stdout)["restored"])


class Export(Checkpoints):
    def test_formats(self):
        self.train()
        to = self.path("hf")
        self.assertEqual(self.ok("export", self.checkpoints, to, "--format", "hf", "--dtype", "bf16"), to + "\n")
        self.assertEqual(sorted(os.listdir(to)), ["config.json", "model.safetensors"])
        with open(os.path.join(to, "config.json")) as file:
            config = json.load(file)
        self.assertEqual((config["architectures"], config["dtype"], config["n_embd"]), (["GPT2LMHeadModel"], "bfloat16", 16))
        half, whole = os.path.getsize(os.path.join(to, "model.safetensors")), self.path("whole")
        self.ok("export", self.checkpoints, whole)
        self.assertTrue(1.5 < os.path.getsize(whole) / half < 2.2)
        self.refused(2, "it is a folder; name a file", "export", self.checkpoints, to)
        self.refused(2, "it is a file; name a folder", "export", self.checkpoints, whole, "--format", "hf")
        self.refused(2, "lies in the checkpoint", "export", self.checkpoints, os.path.join(self.checkpoints, "step-00000006"), "--format", "hf")


if __name__ == "__main__":
    SHERD = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1])
