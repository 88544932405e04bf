#!/usr/bin/env python3
"""`sherd doctor` finds every fault that is planted.  usage: doctor_check.py SHERD BROKEN_REDUCE [--preload WRONG_CLOCK NO_LOCKS]"""
import array
import fcntl
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SHERD = BROKEN = CLOCK = NO_LOCKS = None
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # which nohup and background jobs have ignored
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
MARK = "SHERD_DOCTOR_TEST"

JOB = """name: small
model: {family: gpt2, vocab_size: 60, context: 8, d_model: 16, n_layer: 2, n_head: 2}
data: {train: tokens.u16}
train: {steps: 12, global_batch: 12, micro_batch: 1, clip: 1.0}
optimizer: {lr: 1.0e-2, warmup_steps: 3}
checkpoint: {every: 5}
run: {threads: 1}
"""


def environment():
    return {k: v for k, v in os.environ.items() if k not in LAUNCHER}


def refuse_constant(word):
    raise ValueError(f"{word} is not JSON")


def may_mount():
    return subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode == 0


class Doctor(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="sherd-doctor-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.path("job.yaml", JOB.encode())
        self.path("tokens.u16", array.array("H", [i * i % 59 for i in range(4000)]).tobytes())
        self.before = self.listing()

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content)
        return path

    def listing(self):
        return sorted((os.path.join(root, name), os.lstat(os.path.join(root, name)).st_mtime_ns)
                      for root, folders, names in os.walk(self.folder) for name in names + folders)

    def doctor(self, *args, job="job.yaml", ranks=2, settings=(), program=None, prefix=(), limit=None, leaves=True):
        """The exit code, and {check: finding} of the worst of each check."""
        command = [*prefix, program or SHERD, "doctor", *([self.path(job)] if job else []), "-n", str(ranks), "--json", *args]
        for setting in settings:
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=self.folder, timeout=120,
                              preexec_fn=lambda: limit and resource.setrlimit(*limit))
        if leaves:
            self.assertEqual(self.listing(), self.before, "it has left something behind")
        try:
            report = json.loads(done.stdout, parse_constant=refuse_constant)
        except ValueError:
            self.fail(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
        worst = ("skipped", "ok", "warning", "error")
        found = {}
        for check in report["checks"]:
            old = found.get(check["check"])
            if not old or worst.index(check["state"]) > worst.index(old["state"]):
                found[check["check"]] = check
        states = [check["state"] for check in report["checks"]]
        self.assertEqual((report["errors"], report["warnings"]), (states.count("error"), states.count("warning")))
        self.assertEqual(report["verdict"], "error" if "error" in states else "warning" if "warning" in states else "ok")
        return done.returncode, found

    def expect(self, found, check, state, *words):
        self.assertEqual(found[check]["state"], state, found[check])
        for word in words:
            self.assertIn(word, found[check]["text"] + " -> " + found[check].get("advice", ""))

    def only_error(self, found, check):
        self.assertEqual([name for name, finding in found.items() if finding["state"] == "error"], [check], found)

    # --- what is good

    def test_a_machine_without_a_job(self):
        code, found = self.doctor(job=None, ranks=3)
        self.assertEqual(code, 0, found)
        for check in ("system", "cpu", "memory", "shared memory", "limits", "clock", "files", "backends", "devices", "libraries", "ranks", "collectives"):
            self.assertIn(found[check]["state"], ("ok", "warning"), check)
        self.assertGreater(found["collectives"]["values"]["reduce_bytes_per_s"], 0)
        self.assertGreater(found["cpu"]["values"]["fp32_gflops"], 0)
        self.assertNotIn("step", found)
        self.assertRegex(found["devices"]["text"], r"^none: this build has no backend for GPUs|^none for cuda: \S|^cuda, driver for \d+\.\d+, built with \d+\.\d+: \S")
        self.assertEqual("devices" in found["devices"]["values"], "this build has no" not in found["devices"]["text"])

    def test_a_program_without_the_backend_of_gpus_says_so(self):
        code, found = self.doctor(job=None, ranks=1, program=BROKEN)
        self.expect(found, "devices", found["devices"]["state"], "none: this build has no backend for GPUs")

    def test_a_machine_where_nothing_can_be_written_in_the_working_directory(self):
        code, found = self.doctor(job=None, ranks=1, prefix=["env", "-C", "/proc"])
        self.assertEqual(code, 0, found)
        self.expect(found, "files", "ok", "working directory: nothing is tried: cannot make a file in .")
        self.assertEqual(found["files"]["values"], {})

    def test_a_good_job_is_good_at_every_stage(self):
        for settings in (["shard.stage=0"], ["shard.stage=3"], ["shard.stage=2", "shard.gather=copy", "train.precision=bf16"]):
            code, found = self.doctor(settings=settings)
            self.assertEqual(code, 0, found)
            self.assertLess(abs(found["step"]["values"]["loss"] - 4.094), 0.3)  # ln 60
            self.assertEqual(found["step"]["state"], "ok")
            self.assertEqual(found["step"]["values"]["targets"], 16)
            self.assertGreater(found["disk"]["values"]["write_bytes_per_s"], 0)
            self.assertGreaterEqual(found["disk"]["values"]["probed_bytes"], 4 << 20)  # more than a checkpoint has
            self.assertLess(found["outputs"]["values"]["checkpoint_bytes"], 1 << 20)
            self.assertEqual(found["data.train"]["values"]["looked_at_all"], 1)

    def test_text_has_a_line_for_each_check_and_what_to_do_below_it(self):
        os.mkdir(self.path("odd\033[2J"))
        self.path("odd\033[2J/job.yaml", JOB.encode())
        done = subprocess.run([SHERD, "doctor", self.path("odd\033[2J/job.yaml")], capture_output=True, text=True, env=environment(), cwd=self.folder)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^ok       plan +gpt2, ")
        self.assertRegex(done.stdout, r"(?m)^error    data.train +.*odd\?\[2J/tokens.u16")
        self.assertRegex(done.stdout, r"(?m)^\d+ errors?, \d+ warnings?, in [\d.]+ s$")
        self.assertNotIn("\033", done.stdout)

    def test_text_shows_no_character_that_is_none(self):
        # ESC; C1's CSI; a byte that is no UTF-8; a line end of Unicode's; a letter.
        folder = os.path.join(self.folder.encode(), b"odd-\033[2J\xc2\x9bJ\xffx" + "\u2028z\u00e9".encode())
        os.mkdir(folder)
        for file in ("job.yaml", "tokens.u16"):
            shutil.copy(self.path(file), os.path.join(folder, file.encode()))
        command = [SHERD, "doctor", os.path.join(folder, b"job.yaml"), "-n", "1"]
        done = subprocess.run(command, capture_output=True, env=environment(), cwd=self.folder)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("/odd-\ufffdJ\ufffdx\ufffdz\u00e9/", next(line for line in done.stdout.decode().splitlines() if line.split()[1] == "outputs"))
        done = subprocess.run([*command, "--json"], capture_output=True, env=environment(), cwd=self.folder)
        said = next(check["text"] for check in json.loads(done.stdout)["checks"] if check["check"] == "outputs")
        self.assertIn("/odd-\033[2J\x9bJ?x\u2028z\u00e9/", said)

    def test_bad_usage_and_bad_jobs_exit_2(self):
        for args in (["--overfit"], ["--set", "train.steps=2"], ["-n", "0"], ["job.yaml", "--set", "no.key=1"], ["job.yaml", "--set", "model.n_head=3"]):
            done = subprocess.run([SHERD, "doctor", *args], capture_output=True, text=True, env=environment(), cwd=self.folder)
            self.assertEqual(done.returncode, 2, (args, done.stdout))

    def test_a_checkpoint_to_go_on_from_is_loaded_and_left_alone(self):
        subprocess.run([SHERD, "train", self.path("job.yaml"), "--set", "train.steps=9", "--set", "optimizer.schedule=constant"], check=True,
                       capture_output=True, env=environment(), cwd=self.folder)
        self.before = self.listing()
        code, found = self.doctor(settings=["optimizer.schedule=constant"])
        self.assertEqual(code, 0, found)
        self.expect(found, "checkpoint.resume", "ok", "goes on from", "9 of 12 steps")
        self.assertLess(found["step"]["values"]["loss"], 4)
        code, found = self.doctor(settings=["optimizer.schedule=constant", "train.steps=9"], prefix=["env", "-C", "/proc"])
        self.assertEqual(code, 0, found)
        for check in ("outputs", "files", "file size", "disk"):
            self.expect(found, check, "skipped", "nothing will be written")
        for name in sorted(os.listdir(self.path("runs/small/checkpoints"))):
            for file in os.listdir(self.path(f"runs/small/checkpoints/{name}")) if name.startswith("step") else ():
                os.truncate(self.path(f"runs/small/checkpoints/{name}/{file}"), 100)
        self.before = self.listing()
        code, found = self.doctor(settings=["optimizer.schedule=constant"])
        self.assertEqual(code, 3, found)
        self.expect(found, "checkpoint.resume", "error")

    # --- data

    def test_damaged_data(self):
        self.path("bad.bin", struct.pack("<3i", 20240520, 1, 999999) + bytes(1012) + bytes(100))
        self.before = self.listing()
        code, found = self.doctor(settings=["data.train=bad.bin", "data.format=llmc"])
        self.assertEqual(code, 3)
        self.expect(found, "data.train", "error", "bad.bin")
        self.assertEqual(found["ranks"]["state"], "skipped")

    def test_a_checksum_that_is_wrong(self):
        self.path("text.txt", bytes(32 + i * 7 % 20 for i in range(100000)))
        subprocess.run([SHERD, "data", "pack", self.path("text.txt"), "--to", self.path("packed.bin")], check=True, capture_output=True, cwd=self.folder)
        with open(self.path("packed.bin"), "r+b") as file:
            file.seek(150001)
            odd = file.tell() % 2
            file.seek(150000 + 2 * odd - odd - odd)
            file.write(b"\x21\x00")  # another token that is none out of range
        self.before = self.listing()
        code, found = self.doctor(settings=["data.train=packed.bin"])
        self.assertEqual(code, 3)
        self.expect(found, "data.train", "error", "checksum")

    def test_one_id_out_of_range_among_many(self):
        ids = array.array("H", [i % 59 for i in range(3_000_000)])
        ids[2_345_671] = 60
        self.path("big.u16", ids.tobytes())
        self.before = self.listing()
        code, found = self.doctor(settings=["data.train=big.u16"])
        self.assertEqual(code, 3)
        self.expect(found, "data.train", "error", "big.u16", f"token 60 at byte {2 * 2_345_671} ")
        validation = ["data.validation=big.u16"]
        self.assertEqual(self.doctor(settings=validation)[0], 0)  # nothing of it is read but samples
        code, found = self.doctor("--all-data", settings=validation)
        self.assertEqual(code, 3)
        self.expect(found, "data.validation", "error", f"byte {2 * 2_345_671} ")

    # --- outputs, memory, limits

    @unittest.skipUnless(may_mount(), "no mounts of one's own here")
    def test_a_read_only_folder(self):
        os.mkdir(self.path("runs"))
        self.before = self.listing()
        script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
        code, found = self.doctor(prefix=["unshare", "-rm", "sh", "-c", script, self.path("runs")])
        self.assertEqual(code, 3)
        self.expect(found, "outputs", "error", "cannot write in", "Read-only")

    @unittest.skipUnless(may_mount(), "no mounts of one's own here")
    def test_no_room_for_a_checkpoint_or_for_those_that_stay(self):
        os.mkdir(self.path("runs"))
        self.before = self.listing()
        script = 'mount -t tmpfs -o size=$1 tmpfs "$0" && shift && exec "$@"'
        code, found = self.doctor(prefix=["unshare", "-rm", "sh", "-c", script, self.path("runs"), "64k"])
        self.assertEqual(code, 3)
        self.expect(found, "outputs", "error", "bytes free", "one checkpoint takes")
        code, found = self.doctor(prefix=["unshare", "-rm", "sh", "-c", script, self.path("runs"), "192k"])
        self.assertEqual(code, 0, found)
        self.expect(found, "outputs", "warning", "make room, or lower checkpoint.keep")

    def test_a_file_system_without_locks(self):
        if not NO_LOCKS:
            self.skipTest("nothing can be preloaded")
        os.makedirs(self.path("runs/small/checkpoints"))
        self.path("runs/small/checkpoints/.sherd-lock", b"4711\n")
        self.before = self.listing()
        for job, where in (("job.yaml", "runs/small/checkpoints: locks no"), (None, "working directory: locks no")):
            code, found = self.doctor(job=job, prefix=["env", f"LD_PRELOAD={NO_LOCKS}"])
            self.assertEqual(code, 0, found)
            self.expect(found, "files", "warning", where, "folders synced no", "nothing stops a second job", "after a power failure")
        code, found = self.doctor(prefix=["env", f"LD_PRELOAD={NO_LOCKS}"])
        self.expect(found, "other jobs", "warning", "cannot be told", "another run.dir")
        code, found = self.doctor()
        self.expect(found, "other jobs", "ok", "none writes")
        self.assertEqual(found["files"]["values"]["locks"], 1)

    def test_too_little_address_space(self):
        if not CLOCK:
            self.skipTest("sanitizers need all of the address space")
        wide = ["train.micro_batch=6", "model.d_model=512"]
        code, found = self.doctor(settings=wide, limit=(resource.RLIMIT_AS, (500 << 20, 500 << 20)))
        self.assertEqual(code, 1, found)
        self.expect(found, "job memory", "error", "address space")

    @unittest.skipUnless(may_mount(), "no mounts of one's own here")
    def test_too_little_memory_in_the_control_group(self):
        script = ('mount -t tmpfs tmpfs /sys/fs/cgroup && group=$(sed -n s/^0::// /proc/self/cgroup) && mkdir -p /sys/fs/cgroup/$group && '
                  'echo 30000000 > /sys/fs/cgroup/$group/memory.max && exec "$@"')
        code, found = self.doctor(prefix=["unshare", "-rm", "sh", "-c", script, "-"])
        self.assertEqual(code, 2, found)
        self.expect(found, "job memory", "error", "this machine has 0.0 GiB")
        self.assertEqual(found["ranks"]["state"], "skipped")

    @unittest.skipUnless(may_mount(), "no mounts of one's own here")
    def test_a_quota_of_processor_time_of_a_group_above(self):
        script = ('mount -t tmpfs tmpfs /sys/fs/cgroup && mkdir -p /sys/fs/cgroup/jobs/this && echo 50000 100000 > /sys/fs/cgroup/jobs/cpu.max && '
                  'echo max 100000 > /sys/fs/cgroup/jobs/this/cpu.max && echo 0::/jobs/this > /sys/fs/cgroup/mine && '
                  'mount --bind /sys/fs/cgroup/mine /proc/$$/cgroup && exec "$@"')
        code, found = self.doctor(job=None, prefix=["unshare", "-rm", "sh", "-c", script, "-"])
        self.assertEqual(code, 0, found)
        self.expect(found, "cpu", "warning", "the control group grants the time of 0.5 cores", "set run.threads x run.ranks to 1")
        self.assertEqual(found["cpu"]["values"]["quota_cores"], 0.5)

    def test_files_that_may_not_grow(self):
        code, found = self.doctor(limit=(resource.RLIMIT_FSIZE, (20000, 20000)))
        self.assertEqual(code, 1, found)
        self.expect(found, "file size", "error", "ulimit -f")

    def test_another_job_that_writes_there(self):
        os.makedirs(self.path("runs/small/checkpoints"))
        with open(self.path("runs/small/checkpoints/.sherd-lock"), "w") as file:
            file.write("4711\n")
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX)
            self.before = self.listing()
            code, found = self.doctor()
        self.assertEqual(code, 1)
        self.expect(found, "other jobs", "error", "process 4711")
        self.assertEqual(self.doctor()[0], 0)  # an old lock file disturbs nobody

    # --- ranks

    def rank_program(self, text):
        """A script that is run in place of each rank's program; $SHERD is that program."""
        path = self.path("rank.sh", f"#!/bin/sh\nSHERD='{SHERD}'\n{text}\nexec \"$SHERD\" \"$@\"\n".encode())
        os.chmod(path, 0o755)
        return f"--rank-program={path}"

    def test_another_binary_on_one_rank(self):
        other = self.path("other")
        shutil.copy(SHERD, other)
        with open(other, "ab") as file:
            file.write(b"\0")
        option = self.rank_program(f'[ "$RANK" = 1 ] && SHERD="{other}"')
        self.before = self.listing()
        code, found = self.doctor(option)
        self.assertEqual(code, 1)
        self.expect(found, "ranks", "error", "rank 1 runs another program", "install the same build")

    def test_another_job_on_one_rank(self):
        option = self.rank_program('[ "$RANK" = 1 ] && set -- "$@" --set train.seed=7')
        self.before = self.listing()
        code, found = self.doctor(option)
        self.assertEqual(code, 1)
        self.expect(found, "ranks", "error", "rank 1 has another job")

    def test_a_wrong_clock(self):
        if not CLOCK:
            self.skipTest("nothing can be preloaded")
        option = self.rank_program(f'export LD_PRELOAD="{CLOCK}"')
        self.before = self.listing()
        code, found = self.doctor(option)
        self.assertEqual(code, 1)
        self.expect(found, "ranks", "error", "the clock of rank 1 is 3600.0 s ahead")

    def test_a_rank_that_is_killed_or_does_not_start(self):
        for text, words in (('[ "$RANK" = 1 ] && kill -9 $$', "rank 1 (pid"), ('[ "$RANK" = 1 ] && exit 5', "ended with exit code 5")):
            option = self.rank_program(text)
            self.before = self.listing()
            code, found = self.doctor(option)
            self.assertEqual(code, 1)
            self.expect(found, "ranks", "error", words)
            self.assertEqual(found["step"]["state"], "skipped")

    def test_a_reduce_that_is_wrong(self):
        code, found = self.doctor(program=BROKEN)
        self.assertEqual(code, 1)
        self.expect(found, "collectives", "error", "a reduce is wrong on rank 1")
        self.assertEqual(found["ranks"]["state"], "ok")
        self.assertEqual(found["step"]["state"], "skipped")

    def test_ranks_compared(self):
        for ranks, settings in ((2, []), (3, ["shard.gather=copy"]), (4, ["shard.replicas=2"]), (2, ["shard.reduce_dtype=bf16", "model.dropout=0.1"])):
            code, found = self.doctor("--compare-ranks", ranks=ranks, settings=settings)
            self.assertEqual(code, 0, found)
            self.expect(found, "compare", "ok", "the same bits")
        self.assertEqual(self.doctor("--compare-ranks", ranks=1)[1]["compare"]["state"], "skipped")
        code, found = self.doctor("--compare-ranks", program=BROKEN)
        self.assertEqual(code, 1)
        self.expect(found, "compare", "error", "in step 0")

    # --- the step

    def initial_weights(self, change):
        """A safetensors file of a fresh model, its fp32 values changed; returns its path."""
        run = self.path("export-run")
        for command in (["train", self.path("job.yaml"), "--set", "train.steps=1", "--set", "optimizer.warmup_steps=0", "--set", f"run.dir={run}"],
                        ["checkpoint", "export", f"{run}/checkpoints", self.path("init.safetensors")]):
            subprocess.run([SHERD, *command], check=True, capture_output=True, env=environment(), cwd=self.folder)
        shutil.rmtree(run)
        with open(self.path("init.safetensors"), "rb") as file:
            whole = file.read()
        begin = 8 + struct.unpack("<Q", whole[:8])[0]
        values = array.array("f", whole[begin:])
        change(values)
        self.path("init.safetensors", whole[:begin] + values.tobytes())
        self.before = self.listing()
        return "model.init=init.safetensors"

    def test_parameters_of_a_wrong_scale(self):
        def scale(values):
            for i in range(len(values)):
                values[i] *= 30

        code, found = self.doctor(settings=[self.initial_weights(scale)])
        self.assertEqual(code, 0)
        self.expect(found, "step", "warning", "worse than guessing")

    def test_a_step_that_is_not_finite(self):
        def spoil(values):
            values[100] = float("nan")

        weights = self.initial_weights(spoil)
        for settings in ([], ["run.on_nonfinite=skip", "train.clip=0"], ["run.on_nonfinite=rollback", "run.outlier_zscore=6", "run.on_outlier=skip"]):
            code, found = self.doctor(settings=[weights, *settings])
            self.assertEqual(code, 1, found)
            self.only_error(found, "step")
            self.expect(found, "step", "error", "loss is nan and gradient norm is nan")

    def test_one_batch_learnt_by_heart(self):
        code, found = self.doctor("--overfit")
        self.assertEqual(code, 0, found)
        values = found["overfit"]["values"]
        self.assertLessEqual(values["last_loss"], values["first_loss"] / 50)
        self.assertGreater(values["steps"], 3)
        code, found = self.doctor("--overfit", settings=["optimizer.lr=1.0e-12"])
        self.assertEqual(code, 1)
        self.expect(found, "overfit", "error", "look at optimizer.lr")

    def test_more_threads_than_cores_are_told_by_what_they_wait(self):
        # Two ranks on one core compute half of the time each; a machine that is busy otherwise makes it only more.
        core = str(min(os.sched_getaffinity(0)))
        wide = ["model.d_model=64", "model.context=64", "model.n_layer=4", "train.micro_batch=6", "run.threads=2"]
        code, found = self.doctor(settings=wide, prefix=["taskset", "-c", core])
        self.assertEqual(code, 0, found)
        self.assertEqual((found["cores"]["values"]["cores"], found["cores"]["values"]["threads"]), (1, 4))
        self.assertGreater(found["cores"]["values"]["waiting_share"], 0.15)
        self.expect(found, "cores", "warning", "more threads than cores: set run.ranks x run.threads to at most 1")

    # --- what is left

    def test_nothing_is_left_when_it_is_killed(self):
        for after_s in (0.05, 0.15, 0.3, 0.5, 0.8):
            mark = f"{os.getpid()}-{after_s}"
            doctor = subprocess.Popen([SHERD, "doctor", self.path("job.yaml"), "-n", "2", "--overfit", "--set", "optimizer.lr=1.0e-9"], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, env={**environment(), MARK: mark}, cwd=self.folder)
            time.sleep(after_s)
            doctor.kill()
            doctor.wait()
            until = time.monotonic() + 10
            while self.marked(mark) and time.monotonic() < until:
                time.sleep(0.05)
            self.assertEqual(self.marked(mark), [])
            self.assertEqual(self.listing(), self.before)

    def marked(self, mark):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if f"{MARK}={mark}".encode() in file.read():
                        found.append(pid)
            except OSError:
                pass
        return found

    # --- the part of train

    def programs(self, *contents):
        """Programs of these contents."""
        paths = [self.path(f"program{i}", content) for i, content in enumerate(contents)]
        for path in paths:
            os.chmod(path, 0o755)
        return paths

    def train_with(self, programs):
        """What ranks that are started one by one end with, each of its own program: (exit code, messages)."""
        ranks = []
        for rank, program in enumerate(programs):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500 + os.getpid() % 1000}
            ranks.append(subprocess.Popen([program, "train", self.path("job.yaml")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                          env={**environment(), **{key: str(value) for key, value in place.items()}}))
        said = [rank.communicate(timeout=60)[1] for rank in ranks]
        return [(rank.returncode, text) for rank, text in zip(ranks, said)]

    def expect_refusal(self, ends):
        for code, said in ends:
            self.assertEqual(code, 1, said)
            self.assertIn("the ranks run different programs", said)

    def test_train_refuses_ranks_of_different_builds(self):
        notes = subprocess.run(["readelf", "-n", SHERD], capture_output=True, text=True)
        words = [line.split(":")[1].strip() for line in notes.stdout.splitlines() if "Build ID" in line]
        self.assertEqual(len(words), 1, "the linker was asked to give programs an identity")
        with open(SHERD, "rb") as file:
            whole = file.read()
        self.expect_refusal(self.train_with(self.programs(whole, whole.replace(bytes.fromhex(words[0]), bytes.fromhex("00" + words[0][2:])))))

    def test_train_tells_programs_without_an_identity_apart_too(self):
        with open(SHERD, "rb") as file:
            whole = file.read()
        note = struct.pack("<3I4s", 4, 20, 3, b"GNU\0")
        self.assertEqual(whole.count(note), 1)
        bare = whole.replace(note, struct.pack("<3I4s", 4, 20, 99, b"GNU\0"))
        self.expect_refusal(self.train_with(self.programs(bare, bare + b"\0")))
        self.assertEqual([code for code, _ in self.train_with(self.programs(bare, bare))], [0, 0])


if __name__ == "__main__":
    SHERD, BROKEN = map(os.path.abspath, sys.argv[1:3])
    if sys.argv[3:4] == ["--preload"]:
        CLOCK, NO_LOCKS = map(os.path.abspath, sys.argv[4:6])
        del sys.argv[3:6]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
