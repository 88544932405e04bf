#!/usr/bin/env python3
"""Jobs on a device train as on the CPU.  usage: device_check.py SHERD SOFT

SHERD is the program as it is installed, SOFT the one with the software device in place of a GPU, which reports what is
done to it in a wrong order: with SOFTCUDA_STRICT a program that has been reported does not end well."""
import array
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SHERD = SOFT = None

TOKENS = """name: small
model: {family: gpt2, vocab_size: 60, context: 12, d_model: 24, n_layer: 2, n_head: 3}
data: {train: tokens.u16, validation: validation.u16}
train: {steps: 4, global_batch: 4, micro_batch: 1, clip: 1.0, evaluate_every: 2, evaluate_sequences: 6}
optimizer: {lr: 1.0e-2, warmup_steps: 2}
checkpoint: {every: 2, keep: 0}
run: {threads: 1}
"""
LLAMA = ["model.family=llama", "model.n_kv_head=1", "model.d_ff=40"]
SAMPLES = """name: digits
model: {family: mlp, inputs: 16, outputs: 5, hidden: 12, n_layer: 2}
data: {train: samples.safetensors, validation: samples.safetensors}
train: {steps: 4, global_batch: 8, micro_batch: 4, evaluate_every: 2}
optimizer: {lr: 1.0e-2}
run: {threads: 1}
"""
# Losses of a few steps; in 16 bits results are rounded at other places.
CLOSE = {"fp32": 2e-5, "bf16": 0.03, "fp16": 0.01}


def safetensors(path, arrays):
    head, body = {}, b""
    for name, (dtype, shape, data) in arrays.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + body)


class Device(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="sherd-device-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for name, factor in (("tokens", 7), ("validation", 11)):
            with open(f"{self.folder}/{name}.u16", "wb") as file:
                file.write(array.array("H", [(i * i * factor + i) % 59 for i in range(3000)]).tobytes())

    def train(self, text, where, ranks=1, settings=(), program=None, strict=True, expect=0, folder="run"):
        """The rows of a run's metrics, or what it said where it must fail."""
        job = f"{self.folder}/{folder}.yaml"
        with open(job, "w") as file:
            file.write(text)
        command = [program or SOFT, "train", job, "-n", str(ranks), "--set", f"run.device={where}", "--set", f"run.dir={folder}"]
        for setting in settings:
            command += ["--set", setting]
        environment = dict(os.environ, SOFTCUDA_STRICT="1" if strict else "0")
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=self.folder, timeout=300)
        self.assertEqual(done.returncode, expect, f"{command}\n{done.stdout}{done.stderr}")
        if expect:
            return done.stderr
        with open(f"{self.folder}/{folder}/metrics.jsonl") as file:
            return [json.loads(line) for line in file]

    def compare(self, text, settings=(), ranks=1, on_device=(), precision="fp32"):
        settings = (*settings, f"train.precision={precision}")
        cpu = self.train(text, "cpu", 1, settings, folder="cpu")
        device = self.train(text, "cuda", ranks, (*settings, *on_device), folder="device")
        self.close(cpu, device, precision)
        shutil.rmtree(f"{self.folder}/cpu")
        shutil.rmtree(f"{self.folder}/device")
        return device

    def close(self, cpu, device, precision):
        self.assertEqual([row["step"] for row in cpu], [row["step"] for row in device])
        for a, b in zip(cpu, device):
            for key in ("loss", "validation_loss"):
                if a.get(key) is not None:
                    self.assertTrue(math.isclose(a[key], b[key], abs_tol=CLOSE[precision]), f"{key} of step {a['step']}: {a[key]} on the CPU, {b[key]} on the device")
            self.assertTrue(math.isclose(a["grad_norm"], b["grad_norm"], rel_tol=30 * CLOSE[precision]), f"{a} {b}")

    def test_every_stage_and_link_trains_gpt2_in_every_precision(self):
        for precision, stage, ranks, link in (("fp32", 3, 2, "nccl"), ("fp32", 0, 2, "staged"), ("bf16", 3, 4, "nccl"), ("bf16", 1, 2, "staged"),
                                              ("fp16", 2, 2, "nccl"), ("fp32", 3, 1, "auto")):
            with self.subTest(precision=precision, stage=stage, ranks=ranks, link=link):
                self.compare(TOKENS, [f"shard.stage={stage}"], ranks, [f"run.comm={link}"], precision)

    def test_llama_trains(self):
        for precision in ("fp32", "bf16"):
            self.compare(TOKENS, LLAMA, 2, precision=precision)

    def test_perceptrons_train(self):
        numbers = array.array("f", [math.sin(i * 0.7) for i in range(64 * 16)]).tobytes()
        labels = array.array("i", [i * i % 5 for i in range(64)]).tobytes()
        safetensors(f"{self.folder}/samples.safetensors", {"inputs": ("F32", [64, 16], numbers), "targets": ("I32", [64], labels)})
        for precision in ("fp32", "bf16"):
            rows = self.compare(SAMPLES, ["model.activation=gelu"], 2, precision=precision)
            self.assertIn("accuracy", rows[-1])
        values = array.array("f", [math.cos(i * 0.3) for i in range(64 * 5)]).tobytes()
        safetensors(f"{self.folder}/samples.safetensors", {"inputs": ("F32", [64, 16], numbers), "targets": ("F32", [64, 5], values)})
        self.compare(SAMPLES, ["model.loss=mse"], 2)

    def test_recomputing_dropout_and_documents(self):
        for settings in (["train.recompute=unit"], ["train.recompute=attention"], ["model.dropout=0.2"],
                         ["data.document_separator=3", "data.attend_across_documents=false"], ['model.frozen=["wpe.*", "h.0.*"]']):
            with self.subTest(settings=settings):
                self.compare(TOKENS, settings, 2)

    def test_optimizers(self):
        for name in ("sgd", "lion", "adam"):
            self.compare(TOKENS, [f"optimizer.name={name}", "optimizer.lr=1.0e-3"], 2)
        self.compare(TOKENS, ["optimizer.name=sgd", "optimizer.momentum=0.9", "optimizer.nesterov=true", "optimizer.lr=1.0e-3"], 2)

    def test_states_in_8_bits(self):
        self.compare(TOKENS, ["optimizer.state_dtype=int8"], 2)
        self.compare(TOKENS, ["optimizer.state_dtype=int8", "optimizer.name=lion", "optimizer.lr=1.0e-4", "shard.stage=3"], 4)

    def test_replicas(self):
        self.compare(TOKENS, ["shard.stage=3"], 4, ["shard.replicas=2", "run.comm=nccl"])
        self.compare(TOKENS, ["shard.stage=1"], 4, ["shard.replicas=2", "run.comm=staged"])

    def test_updates_inside_backward_and_accumulation(self):
        self.compare(TOKENS, ["train.clip=0", "run.on_nonfinite=abort"], 2)

    def test_the_same_bits_for_every_number_of_ranks_and_stage(self):
        first = None
        for ranks, stage, link in ((1, 3, "auto"), (2, 0, "nccl"), (2, 3, "staged"), (4, 2, "nccl")):
            rows = self.train(TOKENS, "cuda", ranks, [f"shard.stage={stage}", f"run.comm={link}"])
            found = [(row["loss"], row["grad_norm"], row.get("validation_loss")) for row in rows]
            first = first or found
            self.assertEqual(found, first, f"{ranks} ranks, stage {stage}, {link}")
            shutil.rmtree(f"{self.folder}/run")

    def test_what_a_device_saved_goes_on_on_the_cpu_and_the_other_way_round(self):
        for precision, states in (("fp32", "fp32"), ("bf16", "fp32"), ("fp32", "int8")):
            settings = [f"train.precision={precision}", f"optimizer.state_dtype={states}"]
            whole = self.train(TOKENS, "cpu", 1, settings, folder="whole")
            for first, then in (("cuda", "cpu"), ("cpu", "cuda"), ("cuda", "cuda")):
                self.train(TOKENS, first, 2, ["train.steps=4"] + settings, folder="parts")
                newest = f"{self.folder}/parts/checkpoints/step-00000004"
                self.assertTrue(os.path.isdir(newest), os.listdir(f"{self.folder}/parts"))
                shutil.rmtree(newest)
                rows = self.train(TOKENS, then, 4, settings, folder="parts")
                self.close(whole, rows, precision)
                shutil.rmtree(f"{self.folder}/parts")
            shutil.rmtree(f"{self.folder}/whole")

    def test_what_devices_cannot_do_is_refused_by_its_key(self):
        for setting, key in (("optimizer.name=muon", "optimizer.name is muon"), ("optimizer.name=adafactor", "optimizer.name is adafactor"),
                             ("train.sample_tokens=5", "train.sample_tokens is 5"), ("shard.gather=shared", "shard.gather is shared")):
            said = self.train(TOKENS, "cuda", 2, [setting, "model.vocab_size=257"], expect=2)
            self.assertIn(key, said)
            self.assertIn("run.device: cpu", said)

    def test_without_a_gpu_the_installed_program_says_what_is_missing(self):
        said = self.train(TOKENS, "cuda", 1, program=SHERD, expect=2)
        self.assertIn("run.device is cuda, but", said)
        self.assertRegex(said, "driver|toolkit|GPU")

    def test_without_a_gpu_auto_is_the_cpu_and_loads_nothing_of_a_device(self):
        job = f"{self.folder}/plain.yaml"
        with open(job, "w") as file:
            file.write(TOKENS)
        trace = f"{self.folder}/loaded"
        environment = dict(os.environ, LD_DEBUG="files", LD_DEBUG_OUTPUT=trace)
        done = subprocess.run([SHERD, "train", job, "--set", "run.device=cpu"], capture_output=True, text=True, env=environment, cwd=self.folder, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        loaded = ""
        for name in os.listdir(self.folder):
            if name.startswith("loaded"):
                with open(f"{self.folder}/{name}", errors="replace") as file:
                    loaded += file.read()
        self.assertIn("libopenblas", loaded)
        for library in ("libcuda", "libcudart", "libcublas", "libnccl"):
            self.assertNotIn(library, loaded)


if __name__ == "__main__":
    SHERD, SOFT = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
