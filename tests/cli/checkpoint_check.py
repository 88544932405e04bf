#!/usr/bin/env python3
"""`sherd checkpoint …` from outside.  usage: checkpoint_check.py SHERD"""
import ctypes
import ctypes.util
import fcntl
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SHERD = None
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # which nohup and background jobs have ignored
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
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


def xxh3(data):
    """Of 64 bits, as docs/CHECKPOINT.md has it."""
    hash_of = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so").XXH3_64bits
    hash_of.argtypes, hash_of.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_uint64
    return hash_of(data, len(data))


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
    def skip_under_tsan(self, why):
        with open(SHERD, "rb") as program:
            if b"__tsan_init" in program.read():
                self.skipTest(f"ThreadSanitizer, {why}")

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

    def test_runs_beside_the_job_whose_checkpoints_come_and_go(self):
        self.skip_under_tsan("so slow that every checkpoint is gone before it is read")
        job = subprocess.Popen([SHERD, "train", self.path("job.yaml"), "--set", "train.steps=1000000", "--set", "checkpoint.every=3", "--set", "checkpoint.keep=1",
                                "--set", "train.evaluate_every=0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(job.wait)
        self.addCleanup(job.terminate)
        deadline = time.time() + 30
        while not (os.path.isdir(self.checkpoints) and any(len(name) == 13 for name in os.listdir(self.checkpoints))):
            self.assertLess(time.time(), deadline)
            time.sleep(0.01)
        steps = [json.loads(self.ok("drill", self.checkpoints, "-n", "1", "--json"))["step"] for _ in range(5)]
        self.assertEqual(steps, sorted(steps))
        for _ in range(20):  # what is listed may be let go before it is read: then there is a newer one
            self.assertRegex(self.ok("verify", self.checkpoints), "good")
        self.assertIsNone(job.poll())

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
        flip(os.path.join(self.checkpoints, "step-00000006", "rank-00001.bin"), 0.3)
        self.assertIn("rank-00001.bin", self.refused(3, "not restored: ", "drill", self.checkpoints))
        done = sherd("checkpoint", "drill", self.checkpoints, "--json")
        self.assertEqual(done.returncode, 3)
        self.assertFalse(json.loads(done.stdout)["restored"])


class Verify(Checkpoints):
    def test_reads_the_one_that_came_while_the_last_was_let_go(self):
        self.train()
        old, new = (os.path.join(self.checkpoints, name) for name in ("step-00000003", "step-00000006"))
        os.rename(new, self.path("new"))
        remover = os.open(old, os.O_RDONLY)  # who lets a checkpoint go has it to itself
        self.addCleanup(os.close, remover)
        fcntl.flock(remover, fcntl.LOCK_EX)
        reader = subprocess.Popen([SHERD, "checkpoint", "verify", self.checkpoints], stdout=subprocess.PIPE, text=True)
        self.addCleanup(reader.wait)
        self.addCleanup(reader.kill)
        deadline = time.time() + 30
        while not self.waits_for_a_lock(reader.pid):
            self.assertLess(time.time(), deadline)
            time.sleep(0.001)
        os.rename(self.path("new"), new)
        os.rename(old, self.path("old"))
        fcntl.flock(remover, fcntl.LOCK_UN)
        self.assertRegex(reader.communicate(timeout=60)[0], r"^\S+/step-00000006: good: [^\n]+\n$")
        self.assertEqual(reader.returncode, 0)

    def waits_for_a_lock(self, pid):
        with open("/proc/locks") as file:
            return any(line.split()[1:6] == ["->", "FLOCK", "ADVISORY", "READ", str(pid)] for line in file)


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


def flip(path, at=0.5):
    """Changes one bit of a file."""
    with open(path, "r+b") as file:
        file.seek(int(os.path.getsize(path) * at))
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 16]))


class Look(Checkpoints):
    def test_list_tells_what_is_there_and_why_not(self):
        self.train("-n", "2")
        os.mkdir(os.path.join(self.checkpoints, "step-00000009.partial-0123456789abcdef"))
        os.mkdir(os.path.join(self.checkpoints, "step-00000008"))
        os.mkdir(os.path.join(self.checkpoints, "else"))
        lines = self.ok("list", self.checkpoints).splitlines()
        self.assertEqual([line.split()[0] for line in lines],
                         ["name", "step-00000003", "step-00000006", "step-00000008", "step-00000009.partial-0123456789abcdef"])
        self.assertRegex(lines[1], r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  +[\d.]+ KiB  +\d\.\d\d  complete$")
        self.assertTrue(lines[2].endswith("complete, the newest"))
        found = json.loads(self.ok("list", self.checkpoints, "--json"))["checkpoints"]
        self.assertEqual([(entry["step"], entry["complete"], entry["newest"]) for entry in found],
                         [(3, True, False), (6, True, True), (8, False, False), (9, False, False)])
        self.assertNotIn("why_not", found[1])
        self.assertTrue(found[2]["why_not"] and found[3]["why_not"])
        size = sum(os.path.getsize(os.path.join(found[1]["path"], name)) for name in os.listdir(found[1]["path"]) if name.startswith("rank-"))
        self.assertEqual(found[1]["stored_bytes"], size)
        self.refused(3, "there is no folder", "list", self.path("none"))

    def test_an_empty_folder_is_an_empty_list(self):
        self.assertEqual(json.loads(self.ok("list", self.folder.name, "--json"))["checkpoints"], [])
        self.train()
        done = sherd("checkpoint", "list", self.path("runs/small"))
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn("its checkpoints are in", done.stderr)
        for flags in ((), ("--json",)):
            self.refused(3, "is a checkpoint itself; list the folder above it", "list", os.path.join(self.checkpoints, "step-00000006"), *flags)

    def test_a_version_of_another_build_is_refused_by_number_everywhere(self):
        self.train()
        step = os.path.join(self.checkpoints, "step-00000006")
        with open(os.path.join(step, "manifest.json"), "r+b") as file:
            text = file.read()
            body = text[:text.rindex(b",")].replace(b'"version": 2', b'"version": 9', 1)
            file.seek(0)
            file.write(body + b',\n  "xxh3": "%016x"\n}\n' % xxh3(body))
            self.assertEqual(file.tell(), len(text))
        for name, more in (("show", ()), ("export", (self.path("out"),)), ("drill", ()), ("reshard", (self.path("b"), "-n", "1"))):
            done = sherd("checkpoint", name, step, *more)
            self.assertEqual(done.returncode, 3, (name, done.stderr))
            self.assertIn("is of version 9; this build reads version 2", done.stdout + done.stderr, name)
        told = sherd("checkpoint", "verify", self.checkpoints)
        self.assertEqual(told.returncode, 3)
        self.assertIn("step-00000003: good", told.stdout)
        self.assertNotIn("damaged", told.stdout)

    def test_verify_calls_nothing_damaged_that_it_may_not_open(self):
        self.train("-n", "2")
        file = os.path.join(self.checkpoints, "step-00000006", "rank-00001.bin")
        os.rename(file, self.path("kept"))
        os.symlink("rank-00001.bin", file)  # a link to itself
        for flags in ((), ("--json",)):
            told = sherd("checkpoint", "verify", self.checkpoints, *flags)
            self.assertEqual(told.returncode, 1, told.stdout)
            self.assertIn("rank-00001.bin", told.stderr)
            self.assertNotIn(" damaged", told.stdout)
        self.assertFalse(json.loads(told.stdout)["good"])
        os.remove(file)
        os.rename(self.path("kept"), file)
        self.ok("verify", self.checkpoints)

    def test_show_tells_of_every_value(self):
        self.train("-n", "2")
        shown = json.loads(self.ok("show", self.checkpoints, "--json", "--norms"))
        self.assertEqual((shown["step"], shown["optimizer"], shown["world_size"], shown["note"]["tokens_seen"]), (6, "adamw", 2, 6 * 12 * 8))
        whole = self.path("whole")
        self.ok("export", self.checkpoints, whole)
        with open(whole, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        names = [name for name in header if name != "__metadata__"]
        self.assertEqual(sorted(names), sorted(tensor["name"] for tensor in shown["tensors"]))
        stored = 0
        for tensor in shown["tensors"]:
            first, end = header[tensor["name"]]["data_offsets"]
            values = struct.unpack(f"<{(end - first) // 4}f", data[first:end])
            parameter = tensor["values"][0]
            self.assertEqual([value["state"] for value in tensor["values"]], ["parameter", "exp_avg", "exp_avg_sq"])
            self.assertEqual((tensor["shape"], parameter["elements"]), (header[tensor["name"]]["shape"], len(values)))
            self.assertAlmostEqual(parameter["norm"], sum(value * value for value in values) ** 0.5, delta=1e-9 * (1 + parameter["norm"]))
            self.assertEqual(parameter["largest"], max(map(abs, values)))
            self.assertEqual(parameter["raw_bytes"], 4 * len(values))
            stored += sum(value["stored_bytes"] for value in tensor["values"])
            self.assertTrue(set(parameter["ranks"]) <= {0, 1} and parameter["ranks"])
        self.assertLess(stored, shown["stored_bytes"])
        lines = self.ok("show", self.checkpoints, "--norms").splitlines()
        self.assertTrue(any(line.startswith("h.1.mlp.c_fc.weight ") and "[16, 64]" in line for line in lines))
        self.assertTrue(any(line.startswith("  exp_avg_sq ") for line in lines))
        self.assertIn("state   step 6, 6 updates of adamw (exp_avg, exp_avg_sq in fp32), 576 tokens seen", lines)
        flip(os.path.join(self.checkpoints, "step-00000006", "rank-00000.bin"), 0.4)
        self.refused(3, "rank-00000.bin", "show", self.checkpoints, "--norms")

    def test_norms_of_states_in_8_bits_are_those_of_their_values(self):
        norms = {}
        for dtype in ("fp32", "int8"):
            self.train("--set", f"run.dir={self.path(dtype)}", "--set", f"optimizer.state_dtype={dtype}", "--set", "train.steps=1")
            shown = json.loads(self.ok("show", self.path(dtype + "/checkpoints"), "--json", "--norms"))
            norms[dtype] = [value["norm"] for tensor in shown["tensors"] for value in tensor["values"][1:]]
        self.assertEqual(len(norms["fp32"]), len(norms["int8"]))
        for plain, coded in zip(norms["fp32"], norms["int8"]):
            self.assertAlmostEqual(coded, plain, delta=0.05 * plain)

    def test_verify_names_every_damaged_block_and_goes_on(self):
        self.train("-n", "2")
        self.assertRegex(self.ok("verify", self.checkpoints), r"^\S+3: good: all of .*\n\S+6: good: all of .*\n$")
        newest = os.path.join(self.checkpoints, "step-00000006")
        flip(os.path.join(newest, "rank-00001.bin"), 0.3)
        flip(os.path.join(newest, "rank-00000.bin"), 0.2)
        done = sherd("checkpoint", "verify", self.checkpoints)
        self.assertEqual((done.returncode, done.stderr), (3, ""))
        lines = done.stdout.splitlines()
        self.assertTrue(lines[0].startswith(os.path.join(self.checkpoints, "step-00000003") + ": good"))
        self.assertEqual(lines[-2:], [f"{newest}: damaged: 2 pieces", "1 of 2 checkpoints is damaged: 2 pieces"])
        told = json.loads(sherd("checkpoint", "verify", newest, "--json").stdout)
        self.assertEqual((told["good"], told["damaged_pieces"]), (False, 2))
        pieces = told["checkpoints"][0]["damage"]
        self.assertEqual({os.path.basename(piece["file"]) for piece in pieces}, {"rank-00000.bin", "rank-00001.bin"})
        self.assertTrue(all(piece["count"] > 0 and piece["tensor"] and piece["state"] for piece in pieces))
        os.remove(os.path.join(newest, "rank-00001.bin"))
        self.assertEqual(sherd("checkpoint", "verify", newest).returncode, 3)
        flip(os.path.join(self.checkpoints, "step-00000003", "manifest.json"))
        self.assertIn("2 of 2 checkpoints are damaged", sherd("checkpoint", "verify", self.checkpoints).stdout)
        self.refused(3, "there is no complete checkpoint", "verify", self.folder.name)


def peak_bytes(*args):
    """Of memory, of a command that goes well."""
    child = subprocess.Popen([SHERD, *args], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, args
    return used.ru_maxrss * 1024


class Memory(Checkpoints):
    def test_does_not_grow_with_the_model(self):
        self.skip_under_tsan("which has memory of its own for all that is touched")
        large = ("--set", "model.d_model=512", "--set", "model.vocab_size=8192", "--set", "train.steps=1", "--set", "train.global_batch=1", "--set",
                 "train.evaluate_every=0")
        self.train()
        self.train("--set", f"run.dir={self.path('large')}", *large)
        folders = {"small": self.checkpoints, "large": self.path("large/checkpoints")}
        used = {}
        for size, folder in folders.items():
            st, settings = self.path(size + ".st"), large[:4] if size == "large" else ()
            commands = {"verify": (folder,), "show": (folder, "--norms"), "reshard": (folder, self.path(size + "-on-3"), "-n", "3"), "export": (folder, st),
                        "import": (st, self.path(size + "-imported"), "--job", self.path("job.yaml"), *settings)}
            used[size] = {name: peak_bytes("checkpoint", name, *args) for name, args in commands.items()}
        bytes_there = json.loads(self.ok("list", folders["large"], "--json"))["checkpoints"][0]["raw_bytes"]
        self.assertGreater(bytes_there, 100e6)
        for name, small in used["small"].items():
            # A few blocks for each of two threads.
            self.assertLess(used["large"][name] - small, 40 << 20, name)


class Stop(Checkpoints):
    def test_a_command_that_is_interrupted_leaves_nothing(self):
        large = ("--set", "model.d_model=512", "--set", "model.vocab_size=16384")
        self.train("--set", "train.steps=1", "--set", "train.global_batch=1", "--set", "train.evaluate_every=0", *large)
        st, stopped = self.path("x.st"), 0
        self.ok("export", self.checkpoints, st)
        for number in (signal.SIGINT, signal.SIGTERM):
            for command in (("reshard", self.checkpoints, "TO", "-n", "2", "--compression", "9"), ("import", st, "TO", "--job", self.path("job.yaml"), *large),
                            ("export", self.checkpoints, "TO/x", "--dtype", "bf16")):
                to = self.path(f"{command[0]}-{number}")
                os.mkdir(to)
                child = subprocess.Popen([SHERD, "checkpoint", *(word.replace("TO", to) for word in command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                while child.poll() is None and not os.listdir(to):
                    time.sleep(0.0005)
                child.send_signal(number)
                said = child.communicate(timeout=60)[1]
                if child.returncode == 0:
                    continue
                stopped += 1
                self.assertEqual((child.returncode, said, os.listdir(to)), (128 + number, "sherd: stopped; nothing was written\n", []), command)
        self.assertGreater(stopped, 0)


class Make(Checkpoints):
    def test_reshard_and_import(self):
        self.train("-n", "2")
        to = self.path("on-3")
        path = os.path.join(to, "step-00000006")
        self.assertEqual(self.ok("reshard", self.checkpoints, to, "--ranks", "3"), path + "\n")
        self.assertEqual(sorted(os.listdir(path)), ["manifest.json", "rank-00000.bin", "rank-00001.bin", "rank-00002.bin"])
        self.ok("verify", to)
        for name in ("parameter", "exp_avg", "exp_avg_sq"):
            norms = [[value["norm"] for tensor in json.loads(self.ok("show", where, "--json", "--norms"))["tensors"]
                      for value in tensor["values"] if value["state"] == name] for where in (self.checkpoints, to)]
            self.assertEqual(norms[0], norms[1])
        loss = [json.loads(self.ok("drill", where, "--json", "-n", ranks))["loss"] for where, ranks in ((self.checkpoints, 2), (to, 3), (to, 1))]
        self.assertEqual(loss, loss[:1] * 3)
        self.refused(2, "is there already", "reshard", self.checkpoints, to, "--ranks", "4")
        self.refused(2, "--ranks RANKS is missing", "reshard", self.checkpoints, self.path("x"))
        self.refused(2, "no folder to write to", "reshard", self.checkpoints, "-n", "2")
        self.refused(3, "No such file", "reshard", self.path("none"), self.path("x"), "-n", "2")

    def test_import(self):
        self.train()
        hf, to, whole = self.path("hf"), self.path("imported"), [self.path("a"), self.path("b")]
        self.ok("export", self.checkpoints, hf, "--format", "hf")
        self.assertEqual(self.ok("import", hf, to, "--job", self.path("job.yaml")), os.path.join(to, "step-00000000") + "\n")
        for where, file in zip((self.checkpoints, to), whole):
            self.ok("export", where, file)
        contents = []
        for file in whole:
            with open(file, "rb") as opened:
                contents.append(opened.read())
        self.assertEqual(*contents)
        said = sherd("sample", to, "--ids", "1 2 3", "--print-ids", "--temperature", "0", "--tokens", "5")
        self.assertEqual(said.stdout, sherd("sample", self.checkpoints, "--ids", "1 2 3", "--print-ids", "--temperature", "0", "--tokens", "5").stdout)
        self.refused(2, "is there already", "import", hf, to, "--job", self.path("job.yaml"))
        self.refused(2, "--job JOB.yaml is missing", "import", hf, to)
        self.refused(3, "h.2.ln_1.weight is missing", "import", hf, self.path("x"), "--job", self.path("job.yaml"), "--set", "model.n_layer=3")
        verdict = json.loads(self.ok("drill", to, "--json"))
        self.assertEqual((verdict["step"], verdict["loss"]), (0, json.loads(self.ok("drill", self.checkpoints, "--json"))["loss"]))
        self.ok("reshard", to, self.path("on-2"), "-n", "2")
        self.assertEqual(json.loads(self.ok("drill", self.path("on-2"), "--json"))["loss"], verdict["loss"])
        path = os.path.join(to, "step-00000000")
        resume = ("train", self.path("job.yaml"), "--set", f"run.dir={self.path('on')}", "--set", f"checkpoint.resume={path}")
        done = sherd(*resume)
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"imported weights, without optimizer state; start from them with model.init: {path}", done.stderr)
        self.assertEqual(sherd(*resume, "--set", "checkpoint.resume_weights_only=true").returncode, 0)
        self.train("--set", f"run.dir={self.path('again')}", "--set", f"model.init={to}", "--set", "train.steps=1")


if __name__ == "__main__":
    SHERD = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1])
