#!/usr/bin/env python3
"""The program from outside: help, exit codes, messages.  usage: cli_check.py SHERD SOURCE_ROOT"""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SHERD = ROOT = None
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # which nohup and background jobs have ignored
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def sherd(*args, env=None, cwd=None, timeout=60):
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    return subprocess.run([SHERD, *args], capture_output=True, text=True, timeout=timeout, env={**clean, **(env or {})}, cwd=cwd)


def commands():
    """The names in the list of `sherd --help`."""
    listed = sherd("--help").stdout.split("Commands:\n")[1].split("\n\n")[0]
    return [re.match(r"  (\S+(?: \S+)?)  ", line).group(1) for line in listed.splitlines()]


class Program(unittest.TestCase):
    def test_version_is_that_of_the_project(self):
        with open(os.path.join(ROOT, "meson.build")) as file:
            version = re.search(r"version: '([\d.]+)'", file.read()).group(1)
        self.assertEqual(sherd("--version").stdout, f"sherd {version}\n")

    def test_commands_of_the_manual_are_there(self):
        for name in ("train", "run", "doctor", "plan", "sample", "report", *("checkpoint " + word for word in "list show verify reshard export import drill".split()), "data show", "data pack"):
            self.assertIn(name, commands())

    def test_every_command_has_a_whole_help(self):
        for name in commands():
            done = sherd(*name.split(), "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)
            for part in (f"usage: sherd {name}", "\nOptions:\n", "--help", "\nExamples:\n", "\nExit codes:\n"):
                self.assertIn(part, done.stdout, name)
            # Every option of the usage line is explained, and every option that is explained is accepted.
            used = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", done.stdout.split("\n")[0].split(name, 1)[1]))
            told = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", done.stdout.split("\nOptions:\n")[1].split("\n\n")[0]))
            self.assertLessEqual(used, told, name)
            for option in told - {"-h", "--help"}:
                said = sherd(*name.split(), option, "--no-such-option").stderr
                self.assertNotIn(f"unknown option {option}\n", said, name)
            self.assertTrue(all(len(line) <= 120 for line in done.stdout.splitlines()), name)

    def test_unknown_options_exit_2_with_hint_and_usage(self):
        for name in commands():
            done = sherd(*name.split(), "--hepl")
            self.assertEqual(done.returncode, 2, name)
            self.assertIn("sherd: unknown option --hepl", done.stderr)
            self.assertIn(f"usage: sherd {name}", done.stderr)
            self.assertEqual(done.stdout, "")

    def test_unknown_commands_exit_2_with_a_hint(self):
        done = sherd("trian")
        self.assertEqual(done.returncode, 2)
        self.assertIn("did you mean 'train'?", done.stderr)
        self.assertEqual(sherd().returncode, 2)

    def test_help_of_a_command_and_the_commands_of_a_first_word(self):
        self.assertEqual(sherd("help", "train").stdout, sherd("train", "--help").stdout)
        self.assertEqual(sherd("help", "trian").returncode, 2)
        for words in (("checkpoint",), ("checkpoint", "no")):
            done = sherd(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("sherd checkpoint export CHECKPOINT TO ", done.stderr)
        self.assertIn("sherd checkpoint export CHECKPOINT TO ", sherd("checkpoint", "--help").stdout)

    def test_a_full_disk_is_a_failure(self):
        if os.path.exists("/dev/full"):
            with open("/dev/full", "w") as full:
                self.assertEqual(subprocess.run([SHERD, "--help"], stdout=full, stderr=subprocess.DEVNULL).returncode, 1)


class Run(unittest.TestCase):
    def test_passes_exit_codes_on(self):
        self.assertEqual(sherd("run", "-n", "3", "true").returncode, 0)
        done = sherd("run", "-n", "3", "sh", "-c", "[ $RANK = 2 ] && exit 7; sleep 20")
        self.assertEqual(done.returncode, 7)
        self.assertRegex(done.stderr, r"^sherd: rank 2 of 3 \(pid \d+\) failed with exit code 7; the others were ended\n")

    def test_names_signals(self):
        done = sherd("run", "-n", "2", "sh", "-c", "[ $RANK = 1 ] && kill -SEGV $$; sleep 20")
        self.assertEqual(done.returncode, 128 + signal.SIGSEGV)
        self.assertIn("rank 1 of 2", done.stderr)
        self.assertIn("signal 11 (SIGSEGV)", done.stderr)

    def test_refuses_bad_numbers_and_missing_programs(self):
        self.assertEqual(sherd("run").returncode, 2)
        for ranks in ("0", "x", "-1", "1.5", "100000", ""):
            self.assertEqual(sherd("run", "-n", ranks, "true").returncode, 2, ranks)
        self.assertEqual(sherd("run", "-n", "2", "/no/such/program").returncode, 127)

    def test_options_of_the_program_are_its_own(self):
        done = sherd("run", "-n", "1", "echo", "-n", "--help")
        self.assertEqual((done.returncode, done.stdout), (0, "--help"))

    def test_term_stops_all_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = subprocess.Popen([SHERD, "run", "-n", "2", "sh", "-c", f"echo > {folder}/$RANK; exec sleep 60"], stderr=subprocess.PIPE, text=True)
            while len(os.listdir(folder)) < 2:
                time.sleep(0.01)
            ranks.terminate()
            self.assertEqual(ranks.wait(timeout=5), 128 + signal.SIGTERM)
            self.assertIn("stopped by signal 15 (SIGTERM)", ranks.stderr.read())
            ranks.stderr.close()


class Output(unittest.TestCase):
    """What ranks write, and what is said of those that fail."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.logs = os.path.join(folder.name, "logs")
        self.env = {**os.environ, "TMPDIR": folder.name}
        self.env.pop("TORCHELASTIC_ERROR_FILE", None)
        self.env.pop("OMP_NUM_THREADS", None)

    def run_ranks(self, ranks, script, *options, **more):
        return sherd("run", "-n", str(ranks), *options, "sh", "-c", script, env=self.env, **more)

    def filed(self, rank, name, attempt=0):
        with open(os.path.join(self.logs, f"attempt_{attempt}", str(rank), name), "rb") as file:
            return file.read()

    def report(self):
        with open(os.path.join(self.logs, "failure.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_lines_are_teed_whole_and_filed_as_they_are(self):
        script = "printf 'a\\033[31mb'; sleep 0.1; printf 'c\\n\\377\\r\\n'; printf end >&2"
        done = self.run_ranks(3, script, "-t", "3", "--log-dir", self.logs)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         sorted(line for rank in range(3) for line in (f"[rank{rank}]: a\033[31mbc\033[0m", f"[rank{rank}]: \033[31m\ufffd\033[0m")))
        self.assertEqual(sorted(done.stderr.splitlines()), [f"[rank{rank}]: end" for rank in range(3)])
        for rank in range(3):
            self.assertEqual(self.filed(rank, "stdout.log"), b"a\033[31mbc\n\377\r\n")
            self.assertEqual(self.filed(rank, "stderr.log"), b"end")

    def test_streams_go_where_torchrun_sends_them(self):
        done = self.run_ranks(3, "echo out$RANK; echo err$RANK >&2", "-r", "0:3,1:1", "--tee", "1:2", "--log_dir", self.logs)
        self.assertEqual((done.returncode, done.stdout, sorted(done.stderr.splitlines())), (0, "out2\n", ["[rank1]: err1", "err2"]))
        self.assertEqual((self.filed(0, "stdout.log"), self.filed(0, "stderr.log"), self.filed(1, "stderr.log")), (b"out0\n", b"err0\n", b"err1\n"))
        done = self.run_ranks(3, "echo out$RANK", "--local-ranks-filter", "1")
        self.assertEqual((done.returncode, done.stdout), (0, "out1\n"))
        for bad in (("-r", "4"), ("-t", "3:1"), ("--local-ranks-filter", "x"), ("--log-dir", ""), ("--affinity", "core")):
            self.assertEqual(self.run_ranks(3, "true", *bad).returncode, 2, bad)

    def test_a_folder_for_logs_is_made_and_named(self):
        done = self.run_ranks(1, "echo hello", "-r", "1")
        self.assertRegex(done.stderr, r"^sherd: what the ranks write is in /\S+/sherd-logs-\w+\n$")
        with open(os.path.join(done.stderr.split()[-1], "attempt_0", "0", "stdout.log"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "hello\n")

    def test_a_failure_is_told_with_its_message_last_lines_and_the_others(self):
        script = """[ $RANK = 1 ] && { sleep 0.3; echo almost; echo oops >&2
            printf '{"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "T", "timestamp": "7"}}}' >$TORCHELASTIC_ERROR_FILE; exit 7; }
            [ $RANK = 0 ] && exit 0; exec sleep 30"""
        done = self.run_ranks(4, script, "-r", "3", "--log-dir", self.logs)
        self.assertEqual(done.returncode, 7)
        self.assertRegex(done.stderr, r"(?s)^sherd: rank 1 of 4 \(pid \d+\) failed with exit code 7; the others were ended\n"
                         r"  when      0\.\d\d s after its start\n  host .*  it said\n    \| ValueError: bad\n  its last lines, of \S+/attempt_0/1/\n"
                         r"    \| almost\n    \| oops\n  the other ranks\n    0  +done, exit code 0 +0\.\d+ s before\n    2-3  +ended by TERM +0\.\d+ s after\n$")
        report = self.report()
        self.assertEqual([report[key] for key in ("rank", "exit_code", "signal", "error", "callstack", "last_lines")],
                         [1, 7, None, "ValueError: bad", "T", ["almost", "oops"]])
        self.assertEqual([rank["end"] for rank in report["ranks"]], ["done", "failed", "ended as told", "ended as told"])

    def test_an_outer_launcher_gets_the_error(self):
        self.env["TORCHELASTIC_ERROR_FILE"] = os.path.join(os.path.dirname(self.logs), "outer.json")
        self.run_ranks(2, "[ $RANK = 1 ] && echo broken >$TORCHELASTIC_ERROR_FILE && exit 3; exec sleep 20")
        with open(self.env["TORCHELASTIC_ERROR_FILE"], encoding="utf-8") as file:
            self.assertEqual(json.load(file)["message"]["message"], "rank 1 failed: broken\n")
        self.assertEqual([name for name in os.listdir(self.env["TMPDIR"]) if name.startswith("sherd-")], [], "a temporary folder is left")

    def test_a_closed_terminal_takes_nothing_from_files(self):
        command = f"{SHERD} run -n 2 -t 1 --log-dir {self.logs} sh -c 'for i in $(seq 2000); do echo line $i; done' | head -n 1"
        self.assertEqual(subprocess.run(["bash", "-o", "pipefail", "-c", command], stdout=subprocess.DEVNULL, timeout=60).returncode, 0)
        for rank in range(2):
            self.assertEqual(self.filed(rank, "stdout.log").count(b"\n"), 2000)

    def test_ranks_are_bound_only_when_asked_and_within_what_is_allowed(self):
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            self.skipTest("one CPU")
        script = "grep Cpus_allowed_list /proc/self/status; echo $OMP_NUM_THREADS"
        bound = self.run_ranks(2, script, "--affinity", "cores", "-t", "1", "--log-dir", self.logs)
        lists = [self.filed(rank, "stdout.log").split()[1] for rank in range(2)]
        if "bound to their own" in bound.stderr:
            self.assertNotEqual(lists[0], lists[1])
        self.assertGreaterEqual(int(self.filed(0, "stdout.log").split()[2]), 1)
        free = self.run_ranks(2, "grep Cpus_allowed_list /proc/self/status", "--affinity", "none")
        self.assertEqual(len(set(free.stdout.splitlines())), 1)
        few = subprocess.run(["taskset", "-c", str(cpus[1]), SHERD, "run", "-n", "2", "--affinity", "cores", "sh", "-c",
                              "grep Cpus_allowed_list /proc/self/status"], capture_output=True, text=True, env=self.env, timeout=60)
        self.assertEqual({line.split()[1] for line in few.stdout.splitlines()}, {str(cpus[1])})


class Data(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.texts = [self.write(f"{name}.txt", text * 30) for name, text in (("a", "the first document. "), ("b", "another one! "))]

    def write(self, name, content):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return path

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def test_what_is_packed_is_shown(self):
        done = sherd("data", "pack", *self.texts, "--to", self.path("t.bin"), "--document-separator", "256")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        checksum = re.fullmatch(rf"{re.escape(self.path('t.bin'))}  992 tokens  checksum ([0-9a-f]{{16}})\n", done.stdout).group(1)
        shown = json.loads(sherd("data", "show", self.path("t.bin"), "--json", "--tokens", "1000").stdout)
        first = [*b"the first document. " * 30, 256, *b"another one! " * 30, 256]
        self.assertEqual(shown, {"file": self.path("t.bin"), "format": "llmc", "bytes": 1024 + 2 * 992, "tokens": 992, "lowest_id": 32, "highest_id": 256,
                                 "checksum": checksum, "checksum_stated": True, "first_tokens": first})
        table = sherd("data", "show", self.path("t.bin"), "--tokens", "4").stdout
        for line in ("format     llmc", "tokens     992", "ids        32 to 256", f"checksum   {checksum} (as its header states)", "first      116 104 101 32",
                     "as bytes   'the '"):
            self.assertIn(line + "\n", table)

    def test_an_empty_file_is_shown_too(self):
        shown = json.loads(sherd("data", "show", self.write("none.txt", ""), "--json").stdout)
        self.assertEqual((shown["tokens"], shown["lowest_id"], shown["first_tokens"]), (0, None, []))
        self.assertNotIn("ids ", sherd("data", "show", self.path("none.txt")).stdout)

    def test_arrays_are_shown_too(self):
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }".ljust(117) + b"\n"
        path = self.path("a.npy")
        with open(path, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00\x76\x00" + header + struct.pack("<4f", 1.5, -2, float("nan"), 7))
        shown = json.loads(sherd("data", "show", path, "--json", "--tokens", "3").stdout)
        self.assertEqual(shown, {"file": path, "format": "npy", "bytes": 144, "type": "float32", "shape": [2, 2], "lowest": -2, "highest": 7,
                                 "not_finite": 1, "first": [1.5, -2, "nan"]})
        table = sherd("data", "show", path).stdout
        for line in ("format     npy", "type       float32", "shape      [2, 2]: 2 rows of 2", "numbers    -2 to 7", "first      1.5 -2 nan 7"):
            self.assertIn(line + "\n", table)
        header = json.dumps({"inputs": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}, "one": {"dtype": "F32", "shape": [], "data_offsets": [3, 7]}})
        path = self.path("a.safetensors")
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header.encode() + bytes(7))
        shown = json.loads(sherd("data", "show", path, "--json").stdout)
        self.assertEqual([tensor["name"] for tensor in shown["tensors"]], ["inputs", "one"])
        self.assertEqual((shown["tensors"][0]["shape"], shown["tensors"][1]["elements"]), ([3], 1))
        self.assertIn("tensor     one\ntype       F32, 1 elements; no array to train on\n", sherd("data", "show", path).stdout)
        with open(path, "r+b") as file:
            file.truncate(60)
        self.assertEqual(sherd("data", "show", path).returncode, 3)

    def test_damage_exits_3_and_an_existing_file_2(self):
        path = self.path("t.bin")
        self.assertEqual(sherd("data", "pack", self.texts[0], "--to", path).returncode, 0)
        done = sherd("data", "pack", self.texts[0], "--to", path)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("it is not overwritten", done.stderr)
        with open(path, "r+b") as file:
            file.seek(1030)
            file.write(b"x")
        done = sherd("data", "show", path)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("damaged", done.stderr)
        self.assertEqual(sherd("data", "show", self.path("missing.txt")).returncode, 3)
        self.assertEqual(sherd("data", "show", self.write("what.dat", "ab")).returncode, 3)
        self.assertEqual(sherd("data", "show", self.path("what.dat"), "--format", "u16").returncode, 0)
        for bad in ((), (path, path), (path, "--format", "u8"), (path, "--tokens", "-1")):
            self.assertEqual(sherd("data", "show", *bad).returncode, 2, bad)
        for bad in ((), (path,), ("--to", path), (path, "--to", "x", "--document-separator", "65536"), (path, "--to", "x", "--shard-tokens", "0")):
            self.assertEqual(sherd("data", "pack", *bad).returncode, 2, bad)

    def test_packed_documents_are_trained_on_from_shards_by_a_glob(self):
        self.assertEqual(sherd("data", "pack", *self.texts, "--to", self.path("t.bin"), "--document-separator", "256", "--shard-tokens", "400").returncode, 0)
        job = self.write("job.yaml", "name: packed\nmodel: {family: gpt2, vocab_size: 257, context: 16, d_model: 16, n_layer: 1, n_head: 2}\n"
                         "data: {train: 't-*.bin', document_separator: 256, attend_across_documents: false}\n"
                         "train: {steps: 4, global_batch: 4, micro_batch: 1}\noptimizer: {lr: 1e-2}\nlog: {dir: .}\n")
        done = sherd("train", job, "-n", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("sherd: data.train: 992 tokens in 3 files, 61 sequences of 16; 15 tokens are left out at ends\n", done.stderr)


class Train(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.job = os.path.join(self.folder.name, "job.yaml")
        with open(os.path.join(ROOT, "configs/stage3.yaml")) as file:
            text = file.read().replace("../tests", os.path.join(ROOT, "tests")).replace("../runs", self.folder.name)
        text = text.replace("warmup_steps: 6", "warmup_steps: 0")
        with open(self.job, "w") as file:
            file.write(text)

    def metrics(self, name="stage3"):
        with open(os.path.join(self.folder.name, name, "metrics.jsonl")) as file:
            return re.findall(r'"loss": ?([^,]+),.*?"grad_norm": ?([^,]+),', file.read())

    def test_bad_usage_and_bad_jobs_exit_2(self):
        self.assertEqual(sherd("train").returncode, 2)
        self.assertEqual(sherd("train", self.job, self.job).returncode, 2)
        self.assertEqual(sherd("train", os.path.join(self.folder.name, "no.yaml")).returncode, 2)
        for setting, said in (("train.stesp=3", "did you mean 'steps'"), ("train.steps=1e3", "train.steps"), ("shard.stage=4", "shard.stage"),
                              ("train.global_batch=7", "train.global_batch")):
            done = sherd("train", self.job, "--set", setting)
            self.assertEqual(done.returncode, 2, setting)
            self.assertIn(said, done.stderr, setting)
            self.assertTrue(done.stderr.startswith("sherd: "), done.stderr)
            self.assertEqual(done.stdout, "")
        done = sherd("train", self.job, "-n", "3")
        self.assertEqual(done.returncode, 2)
        self.assertIn("ranks 3 = 6", done.stderr)

    def test_what_only_model_and_session_can_refuse_has_its_place_and_starts_no_rank(self):
        for setting, said in (("model.frozen=[nix]", 'model.frozen: "nix" matches no tensor'), ("model.d_model=49", "the nearest that fit are 48 and 51"),
                              ("optimizer.decay=[nix]", 'optimizer.decay: "nix" matches no tensor'),
                              ("optimizer.groups=[{match: nix}]", 'optimizer.groups[0].match: "nix" matches no tensor')):
            for command in (("train", self.job, "-n", "2"), ("train", self.job, "--dry-run"), ("plan", self.job)):
                done = sherd(*command, "--set", setting)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertTrue(done.stderr.startswith(f"sherd: --set {setting}: {setting.split('=')[0]}"), done.stderr)
                self.assertIn(said, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_bad_data_exits_3_before_any_rank_starts(self):
        for key in ("data.train", "model.init"):
            for path in ("/dev/null", os.path.join(self.folder.name, "missing"), self.job):
                done = sherd("train", self.job, "-n", "2", "--set", f"{key}={path}")
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn(path, done.stderr)
                self.assertNotIn("rank", done.stderr)

    def test_explain_shows_every_section_and_starts_nothing(self):
        done = sherd("train", "--explain")
        self.assertEqual(done.returncode, 0)
        for key in ("global_batch", "weight_decay", "prefetch", "timeout_s"):
            self.assertIn(key, done.stdout)
        self.assertEqual(sherd("train", self.job, "--explain").returncode, 0)
        self.assertEqual(os.listdir(self.folder.name), ["job.yaml"])

    def test_dry_run_tells_memory_and_starts_nothing(self):
        done = sherd("train", self.job, "-n", "4", "--dry-run")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        planned = sherd("plan", self.job, "-n", "4", "--json").stdout
        allocated = re.findall(r'"stage": 3,.*?"allocated_bytes": (\d+)', planned, re.S)[-1]
        self.assertIn(f"{allocated} bytes a rank", done.stdout)
        self.assertEqual(os.listdir(self.folder.name), ["job.yaml"])

    def test_a_dry_run_looks_at_everything_also_inside_another_job(self):
        inside = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        self.assertEqual(sherd("train", self.job, "--dry-run", env=inside).returncode, 0)
        self.assertEqual(sherd("train", self.job, "--dry-run", "--set", "data.train=/dev/null", env=inside).returncode, 3)

    def test_all_configs_are_good_jobs(self):
        tokens = os.path.join(ROOT, "tests/data/golden/gpt2-tiny/tokens.bin")
        text = os.path.join(ROOT, "LICENSE")
        digits = os.path.join(self.folder.name, "digits")
        subprocess.run([sys.executable, os.path.join(ROOT, "examples/digits.py"), digits], check=True, capture_output=True)
        names = sorted(os.listdir(os.path.join(ROOT, "configs")))
        self.assertEqual(names, ["demo.yaml", "digits.yaml", "gpt2-124m.yaml", "llama-tiny.yaml", "stage0.yaml", "stage1.yaml", "stage2.yaml", "stage3.yaml"])
        for name in names:
            data = {"demo.yaml": text, "digits.yaml": "{" + f"inputs: {digits}/train-images.npy, targets: {digits}/train-labels.npy" + "}",
                    "gpt2-124m.yaml": tokens}.get(name)
            sets = ["--set", f"data.train={data}", "--set", f"data.validation={data}"] if data else []
            done = sherd("train", os.path.join(ROOT, "configs", name), "--dry-run", *sets)
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)

    def test_a_job_of_samples_is_planned_trained_and_exported_and_makes_no_texts(self):
        cases = os.path.join(ROOT, "tests/data/mlp/classes")
        with open(self.job, "w") as file:
            file.write("name: m\nmodel: {family: mlp, inputs: 7, outputs: 4, hidden: 13, n_layer: 2}\n"
                       f"data: {{train: {{inputs: {cases}/inputs.npy, targets: {cases}/targets.npy}}, ignored_label: -1}}\n"
                       "train: {steps: 4, global_batch: 12, micro_batch: 3}\noptimizer: {lr: 1.0e-2}\nrun: {threads: 1}\n")
        out = os.path.join(self.folder.name, "out")
        done = sherd("train", self.job, "--dry-run")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("4 steps of 12 samples\n", done.stdout)
        self.assertIn("2 micro-batches of 3 samples per rank and step\n", sherd("plan", self.job, "-n", "2").stdout)
        self.assertIn("  context: none  (not in mlp)\n", sherd("train", self.job, "--explain").stdout)
        done = sherd("train", self.job, "-n", "2", "--set", f"run.dir={out}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"step 4/4 .* accuracy \d+\.\d% .* samples/s")
        done = sherd("checkpoint", "export", out + "/checkpoints", "--to", out + "/m.safetensors")
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = json.loads(sherd("data", "show", out + "/m.safetensors", "--json").stdout)
        self.assertEqual([tensor["name"] for tensor in shown["tensors"]],
                         [f"layers.{i}.{part}" for i in range(3) for part in ("weight", "bias")])
        done = sherd("sample", out + "/checkpoints", "--prompt", "The")
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("an mlp: it has no tokens to write texts with", done.stderr)

    def test_one_rank_and_two_give_the_same_numbers(self):
        for ranks, name in (("1", "one"), ("2", "two")):
            done = sherd("train", self.job, "-n", ranks, "--set", f"run.dir={self.folder.name}/{name}", "--set", "train.steps=4")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("step 4/4", done.stdout)
            self.assertIn("metrics.jsonl", done.stdout)
        self.assertEqual(len(self.metrics("one")), 4)
        self.assertEqual(self.metrics("one"), self.metrics("two"))

    def test_a_job_of_another_launcher_is_joined(self):
        done = sherd("run", "-n", "2", SHERD, "train", self.job, "--set", "train.steps=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("joining a job of 2 ranks"), 1)
        self.assertEqual(len(self.metrics()), 2)

    def test_a_finished_job_says_that_there_is_nothing_to_do(self):
        for said in ("done: 2 steps", "nothing to do"):
            done = sherd("train", self.job, "-n", "2", "--set", "train.steps=2")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(said, done.stdout + done.stderr)

    def test_samples_do_not_depend_on_who_trained_or_reads(self):
        texts = set()
        for ranks, stage in (("1", 0), ("2", 3), ("4", 1)):
            run = f"{self.folder.name}/{ranks}-{stage}"
            done = sherd("train", self.job, "-n", ranks, "--set", f"run.dir={run}", "--set", f"shard.stage={stage}", "--set", "train.steps=3")
            self.assertEqual(done.returncode, 0, done.stderr)
            for threads in ("1", "2"):
                done = subprocess.run([SHERD, "sample", f"{run}/checkpoints", "--prompt", "ab", "--tokens", "40", "--threads", threads],
                                      capture_output=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout.startswith(b"ab"))
                texts.add(done.stdout)
        self.assertEqual(len(texts), 1)
        other = subprocess.run([SHERD, "sample", f"{run}/checkpoints", "--prompt", "ab", "--tokens", "40", "--seed", "2"], capture_output=True)
        self.assertNotIn(other.stdout, texts)

    def trained(self, *settings):
        """The checkpoints of a short run of the byte model."""
        run = f"{self.folder.name}/trained"
        done = sherd("train", self.job, *(word for setting in (f"run.dir={run}", "train.steps=3", *settings) for word in ("--set", setting)))
        self.assertEqual(done.returncode, 0, done.stderr)
        return f"{run}/checkpoints"

    def test_sampling_without_the_cache_gives_the_same_text(self):
        checkpoints = self.trained()
        texts = {sherd("sample", checkpoints, "--prompt", "ab", "--tokens", "90", "--print-ids", *more).stdout
                 for more in ((), ("--no-cache",), ("--top-k", "257", "--top-p", "1"))}
        self.assertEqual(len(texts), 1)
        self.assertEqual(texts.pop().split()[:2], ["97", "98"])

    def test_sampling_takes_and_prints_ids_of_any_vocabulary(self):
        checkpoints = self.trained("model.family=llama", "model.d_ff=64", "model.vocab_size=300")
        done = sherd("sample", checkpoints, "--ids", "1, 2 299", "--print-ids", "--count", "2", "--tokens", "5", "--end-token", "0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 2)
        for line in lines:
            ids = [int(word) for word in line.split(" ")]
            self.assertEqual(ids[:3], [1, 2, 299])
            self.assertTrue(len(ids) <= 8 and max(ids) < 300)
        again = sherd("sample", checkpoints, "--ids", "1 2 299", "--print-ids", "--tokens", "5")
        self.assertEqual(again.stdout.splitlines(), lines[:1])
        for refused, code, said in ((("--prompt", "ab"), 3, "300 tokens"), (("--ids", "1"), 3, "300 tokens"), (("--print-ids",), 2, "token id to begin with"),
                                    (("--ids", "300", "--print-ids"), 2, "token 300 of the prompt"), (("--ids", "1x", "--print-ids"), 2, "--ids: '1x'"),
                                    (("--ids", " ", "--print-ids"), 2, "no token id"), (("--ids", "1", "--prompt", "a"), 2, "one prompt is needed"),
                                    (("--ids", "1", "--print-ids", "--end-token", "300"), 2, "token 300, which is to end"),
                                    (("--top-p", "1.5"), 2, "--top-p 1.5: a number from 0 to 1"), (("--count", "0"), 2, "--count 0"),
                                    (("--prompt-file", "/nowhere"), 2, "/nowhere: cannot read the prompt: No such file")):
            done = sherd("sample", checkpoints, *refused)
            self.assertEqual((done.returncode, done.stdout), (code, ""), refused)
            self.assertIn(said, done.stderr, refused)

    def test_samples_are_separate_and_whole_characters(self):
        checkpoints = self.trained()
        done = sherd("sample", checkpoints, "--prompt", "ab", "--tokens", "0", "--count", "2")
        self.assertEqual(done.stdout, "--- text 1 of 2\nab\n--- text 2 of 2\nab\n")
        for torn in (b"\xe2\x82", b"\xf0\x9f\x98", b"\xc3"):
            done = subprocess.run([SHERD, "sample", checkpoints, "--prompt-file", "-", "--tokens", "0"], input="ä€".encode() + torn, capture_output=True)
            self.assertEqual((done.returncode, done.stdout.decode()), (0, "ä€\n"))
            self.assertEqual(done.stderr.decode().split(": ")[-1].split(), [f"{byte:02x}" for byte in torn])
        bytes_in = bytes(range(1, 256)) + b"\n"
        with open(f"{self.folder.name}/prompt", "wb") as file:
            file.write(bytes_in)
        done = subprocess.run([SHERD, "sample", checkpoints, "--prompt-file", f"{self.folder.name}/prompt", "--tokens", "0"], capture_output=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, bytes_in + b"\n", b""))

    def test_training_shows_what_the_model_writes(self):
        tokens = os.path.join(ROOT, "tests/data/golden/gpt2-tiny/tokens.bin")
        said = set()
        for ranks in ("1", "2"):
            done = sherd("train", self.job, "-n", ranks, "--set", f"run.dir={self.folder.name}/w{ranks}", "--set", "train.steps=4", "--set", "train.evaluate_every=2",
                         "--set", f"data.validation={tokens}", "--set", "train.evaluate_sequences=4", "--set", "train.sample_tokens=50")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("sherd: after step 2 the model writes:\nsherd:   | ", done.stderr)
            said.add("".join(line for line in done.stderr.splitlines() if line.startswith("sherd:   | ")))
        self.assertEqual(len(said), 1)
        planned = [sherd("plan", self.job, "--set", f"data.validation={tokens}", "--set", "train.evaluate_every=2", "--set", f"train.sample_tokens={n}").stdout for n in (0, 50)]
        self.assertNotIn("texts, rank 0", planned[0])
        self.assertRegex(planned[1], r"texts, rank 0 +[\d,]+ ")

    def test_sampling_refuses_what_is_no_checkpoint(self):
        self.assertEqual(sherd("sample", self.folder.name).returncode, 3)
        self.assertEqual(sherd("sample").returncode, 2)

    def ranks_of(self, launcher):
        with open(f"/proc/{launcher}/task/{launcher}/children") as file:
            children = [int(pid) for pid in file.read().split()]
        ranks = {}
        for pid in children:
            try:
                with open(f"/proc/{pid}/environ") as file:
                    rank = re.search(r"(?:^|\0)RANK=(\d+)", file.read())
                with open(f"/proc/{pid}/comm") as file:
                    if rank and file.read().strip() != "sherd-guard":
                        ranks[int(rank.group(1))] = pid
            except OSError:
                pass
        return ranks

    def start_long_job(self, ranks="2", settings=(), options=(), ignored=()):
        def prepare():
            os.setpgrp()
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)
        run = tempfile.mkdtemp(dir=self.folder.name)
        clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
        job = subprocess.Popen([SHERD, "train", self.job, "-n", ranks, *options, "--set", "train.steps=1000000", "--set", "checkpoint.every=0", "--set", f"run.dir={run}",
                                *(word for setting in settings for word in ("--set", setting))],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=clean, preexec_fn=prepare)
        self.addCleanup(job.stderr.close)
        job.run_dir = run
        deadline = time.time() + 60
        metrics = os.path.join(run, "metrics.jsonl")
        while not (os.path.exists(metrics) and os.path.getsize(metrics)):
            if time.time() > deadline or job.poll() is not None:
                job.kill()
                self.fail("the job did not start: " + job.stderr.read())
            time.sleep(0.01)
        return job

    def test_a_job_too_large_for_the_machine_says_so_once_and_exits_2(self):
        large = ("model.d_model=32768", "model.n_layer=96", "model.n_head=64", "model.vocab_size=257")
        for stage in ("0", "3"):
            done = sherd("train", self.job, "-n", "4", "--set", f"shard.stage={stage}", *(word for setting in large for word in ("--set", setting)))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, r"^sherd: \S+: 4 ranks of \d+ bytes need \S+ GiB, and this machine has \S+ GiB; lower .*\n$")
            self.assertEqual("or set shard.stage: 3" in done.stderr, stage == "0")

    def test_a_killed_rank_ends_the_job_named_with_exit_4(self):
        for victim in (0, 1) * 10:
            job = self.start_long_job()
            pid = self.ranks_of(job.pid)[victim]
            os.kill(pid, signal.SIGKILL)
            began = time.time()
            self.assertEqual(job.wait(timeout=5), 4)
            self.assertLess(time.time() - began, 5)
            self.assertIn(f"rank {victim} of 2 (pid {pid}) was killed by signal 9 (SIGKILL)", job.stderr.read())

    def test_a_failed_rank_of_train_is_told_with_step_and_phase(self):
        job = self.start_long_job()
        pid = self.ranks_of(job.pid)[1]
        os.kill(pid, signal.SIGABRT)  # sanitizers have their own answer to SIGSEGV
        self.assertEqual(job.wait(timeout=10), 4)
        said = job.stderr.read()
        self.assertRegex(said, r"  when      training, after step \d+, \d+(\.\d+)? s after its start\n")
        self.assertRegex(said, r"  noticed   rank 1 died, \w")  # it may have been anywhere
        self.assertRegex(said, r"    0  +lost another rank \(4\)")
        with open(os.path.join(job.run_dir, "failure.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual([report[key] for key in ("rank", "pid", "signal", "phase")], [1, pid, "ABRT", "training"])
        with open(os.path.join(job.run_dir, "attempt_0", "0", "error.json"), encoding="utf-8") as file:
            error = json.load(file)["message"]
        self.assertRegex(error["message"], "rank 1 died")
        self.assertRegex(error["extraInfo"]["timestamp"], r"^\d+$")
        self.assertTrue(os.path.exists(os.path.join(job.run_dir, "attempt_0", "1", "stderr.log")))

    def test_a_validation_that_fails_on_all_ranks_is_told_as_such_whatever_was_saved_after_it(self):
        for every in (0, 20):
            held = os.path.join(self.folder.name, "held.bin")
            shutil.copy(os.path.join(ROOT, "tests/data/golden/gpt2-tiny/tokens.bin"), held)
            job = self.start_long_job(settings=(f"data.validation={held}", "train.evaluate_every=20", f"checkpoint.every={every}"))
            os.truncate(held, 1024 + 64)
            self.assertEqual(job.wait(timeout=30), 3, job.stderr.read())
            with open(os.path.join(job.run_dir, "metrics.jsonl"), encoding="utf-8") as file:
                rows = len(file.readlines())
            with open(os.path.join(job.run_dir, "failure.json"), encoding="utf-8") as file:
                report = json.load(file)
            self.assertEqual((rows % 20, report["step"], report["phase"]), (0, rows, "evaluating"))
            self.assertIn("held.bin", report["cause"])
            self.assertEqual(steps_in(os.path.join(job.run_dir, "checkpoints"))[-1], f"step-{rows:08}")

    def test_a_hung_rank_ends_the_job_with_exit_4_and_its_peer_is_not_blamed(self):
        job = self.start_long_job(settings=("run.timeout_s=2",))
        os.kill(self.ranks_of(job.pid)[1], signal.SIGSTOP)
        self.assertEqual(job.wait(timeout=10), 4)
        said = job.stderr.read()
        self.assertRegex(said, r"(?m)^sherd: rank 0 waited 2 s in .* for rank 1")
        self.assertRegex(said, r"rank 0 of 2 \(pid \d+\) gave up: another rank was lost or hung; the others were ended\n")
        folder = re.search(r"what every rank was doing is in (\S+); 'sherd debug' reads it", said)[1]
        found = json.loads(sherd("debug", folder, "--json").stdout)
        self.assertEqual((found["verdict"], found["rank"], found["dumps"], found["ranks"][1]["life"]), ("missing rank", 1, 2, "stopped"))
        self.assertRegex(sherd("debug", folder).stdout, r"^verdict: missing rank\n\nRank 1 \(pid \d+ on \S+\) did not arrive: it is stopped")

    def test_debug_refuses_what_are_no_dumps(self):
        self.assertEqual(sherd("debug").returncode, 2)
        self.assertEqual(sherd("debug", "a", "b").returncode, 2)
        with tempfile.TemporaryDirectory() as folder:
            for path in (folder, os.path.join(folder, "missing")):
                done = sherd("debug", path)
                self.assertEqual((done.returncode, done.stdout), (3, ""))
                self.assertIn(path, done.stderr)
            with open(os.path.join(folder, "rank-00000.json"), "w") as file:
                file.write("{}")
            done = sherd("debug", folder)
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertIn("rank-00000.json is no dump of a rank", done.stderr)

    def test_a_killed_launcher_leaves_no_rank(self):
        for _ in range(20):
            job = self.start_long_job()
            pids = self.ranks_of(job.pid).values()
            self.assertEqual(len(pids), 2)
            job.kill()
            job.wait()
            deadline = time.time() + 5
            while any(alive(pid) for pid in pids):
                self.assertLess(time.time(), deadline)
                time.sleep(0.005)

    def test_term_int_and_hup_stop_the_job_between_steps(self):
        for number, ranks, every in ((signal.SIGTERM, "2", 0), (signal.SIGINT, "2", 1000000), (signal.SIGHUP, "1", 1000000)):
            job = self.start_long_job(ranks, settings=(f"checkpoint.every={every}",))
            job.send_signal(number)
            self.assertEqual(job.wait(timeout=10), 128 + number)
            said = job.stderr.read()
            self.assertIn(f"sherd: SIG{number.name[3:]}: stops after this step, once it is saved\n", said)
            self.assertRegex(said, r"sherd: the newest checkpoint is \S+/step-\d{8}; nothing is lost\n")
            self.assertNotIn("failed", said)
            with open(os.path.join(job.run_dir, "metrics.jsonl")) as file:
                self.assertTrue(file.read().endswith("}\n"))

    def test_a_stop_that_only_another_rank_hears_is_told_too(self):
        job = self.start_long_job()
        os.kill(self.ranks_of(job.pid)[1], signal.SIGTERM)
        self.assertEqual(job.wait(timeout=20), 143)
        self.assertEqual(job.stderr.read().count("sherd: SIGTERM: stops after this step, once it is saved\n"), 1)

    def test_one_rank_that_is_stopped_before_its_first_step_says_so(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            job = subprocess.Popen([SHERD, "train", self.job, "-n", "1", "--set", "model.d_model=960", "--set", "model.n_layer=16",
                                    "--set", f"run.dir={self.folder.name}/{number.name}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addCleanup(job.stderr.close)
            self.assertTrue(wait_for(lambda: caught(job.pid) >> (number - 1) & 1), "it does not handle the signal")
            job.send_signal(number)
            self.assertEqual(job.wait(timeout=20), 128 + number)
            self.assertIn(f"sherd: stopped by signal {int(number)} ({number.name}) before the first step\n", job.stderr.read())

    def test_signals_that_were_ignored_at_the_start_stay_so(self):
        ignored = (signal.SIGINT, signal.SIGHUP)  # as nohup does, and a shell for what a script starts by `&`
        for ranks in ("1", "2"):
            job = self.start_long_job(ranks, ignored=ignored)
            for pid in [job.pid, *self.ranks_of(job.pid).values()]:
                for number in ignored:
                    os.kill(pid, number)
            rows = os.path.join(job.run_dir, "metrics.jsonl")
            bytes_then = os.path.getsize(rows)
            deadline = time.time() + 20
            while os.path.getsize(rows) < bytes_then + 2000:
                self.assertLess(time.time(), deadline)
                self.assertIsNone(job.poll())
                time.sleep(0.01)
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait(timeout=10), 143)

    def test_a_second_job_in_the_same_folders_is_refused(self):
        for ranks in ("1", "2"):
            job = self.start_long_job(ranks)
            for settings in ([], [f"checkpoint.dir={self.folder.name}/elsewhere{ranks}"]):
                done = sherd("train", self.job, "--set", f"run.dir={job.run_dir}", *(word for s in settings for word in ("--set", s)))
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr, rf"^sherd: (checkpoint|log).dir is \S+, which another job writes to \(process {job.pid}\); ")
            # Its lock goes with the last of its processes: the next job need not wait for anything else.
            job.kill()
            done = sherd("train", self.job, "--set", f"run.dir={job.run_dir}", "--set", "train.steps=2")
            self.assertEqual(done.returncode, 0, done.stderr)
            job.wait()

    def test_outputs_are_looked_at_before_anything_is_done(self):
        path = os.path.join(self.folder.name, "file")
        with open(path, "w"):
            pass
        for key in ("checkpoint.dir", "log.dir"):
            for command in (("train", self.job, "-n", "2"), ("train", self.job, "--dry-run")):
                done = sherd(*command, "--set", f"{key}={path}/below")
                self.assertEqual((done.returncode, done.stdout), (3, ""))
                self.assertEqual(done.stderr, f"sherd: --set {key}={path}/below: {key} is {path}/below, but {path} is a file; a folder is needed\n")
        # /proc takes no folders, from nobody.
        done = sherd("train", self.job, "-n", "2", "--set", "checkpoint.dir=/proc/checkpoints")
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("checkpoint.dir: cannot make the folder /proc/checkpoints", done.stderr)

    def test_a_dry_run_tells_where_the_job_begins(self):
        self.assertEqual(sherd("train", self.job, "--set", "train.steps=2").returncode, 0)
        for steps, said in ((3, "goes on from the newest checkpoint, after step 2"), (2, "all 2 steps are done"), (1, "has 2 steps, more than train.steps 1")):
            done = sherd("train", self.job, "--dry-run", "--set", f"train.steps={steps}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(said, done.stdout)
        where = os.path.join(self.folder.name, "stage3/checkpoints/step-00000002")
        done = sherd("train", self.job, "--dry-run", "--set", "train.steps=3", "--set", f"checkpoint.resume={where}")
        self.assertIn(f"goes on from {where}, after step 2\n", done.stdout)

    def test_one_of_anything_is_said_as_such(self):
        one = ("--set", "train.steps=1", "--set", "train.global_batch=1", "--set", "train.micro_batch=1", "-n", "1")
        self.assertIn(" parameters, 1 step of 1 sequence of ", sherd("train", self.job, "--dry-run", *one).stdout)
        self.assertIn("done: 1 step in ", sherd("train", self.job, *one).stdout)
        self.assertIn("the one step is done: nothing to do", sherd("train", self.job, "--dry-run", *one).stdout)

    def test_a_stopped_job_names_its_newest_checkpoint(self):
        job = self.start_long_job(settings=("checkpoint.every=2",))
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(timeout=10), 143)
        said = job.stderr.read()
        newest = re.search(r"the newest checkpoint is (\S+); nothing is lost\n", said)
        self.assertTrue(newest, said)
        self.assertTrue(os.path.exists(os.path.join(newest.group(1), "manifest.json")))

    def test_a_longer_run_says_that_its_schedule_is_longer(self):
        for schedule, told in (("cosine", 1), ("constant", 0)):
            sets = ("--set", f"optimizer.schedule={schedule}", "--set", f"run.dir={self.folder.name}/{schedule}")
            for steps in ("2", "3"):
                done = sherd("train", self.job, *sets, "--set", f"train.steps={steps}")
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count(f"resuming: optimizer.schedule: {schedule} now runs to step 3"), told)

    def test_sampling_says_what_is_there_instead_of_a_checkpoint(self):
        self.assertEqual(sherd("train", self.job, "--set", "train.steps=1").returncode, 0)
        run = os.path.join(self.folder.name, "stage3")
        for path, said in ((run, f"a run's folder; its checkpoints are in {run}/checkpoints"), (self.job, "a file; a checkpoint is a folder"),
                           (run + "/no", "No such file or directory"), (self.folder.name, "there is no complete checkpoint")):
            done = sherd("sample", path)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (3, "", f"sherd: {path}: {said}\n"))

    def test_output_that_nobody_reads_ends_the_job_quietly(self):
        for ranks in ("1", "2"):
            job = subprocess.Popen([SHERD, "train", self.job, "-n", ranks, "--set", "train.steps=1000000", "--set", f"run.dir={self.folder.name}/{ranks}"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(job.stderr.close)
            self.assertIn("step 1/", job.stdout.readline())
            job.stdout.close()
            self.assertIn(job.wait(timeout=20), (-signal.SIGPIPE, 128 + signal.SIGPIPE))
            self.assertNotIn("SIGPIPE", job.stderr.read())

    def test_a_job_on_standard_input_is_refused(self):
        for path in ("-", "/dev/stdin", "/dev/fd/0"):
            with open(self.job) as file:
                done = subprocess.run([SHERD, "train", path, "--dry-run"], stdin=file, capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stderr, f"sherd: {path}: a job file is a regular file with a name, as its paths are relative to its folder; save it, and give its path\n")

    def test_ranks_in_ranks_are_warned_of(self):
        done = sherd("run", "-n", "2", SHERD, "train", self.job, "-n", "2", "--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("-n 2 starts ranks of its own in each of the 2 ranks"), 1)

    def test_numbers_that_are_not_finite_come_with_the_step_and_what_to_do(self):
        done = sherd("train", self.job, "-n", "1", "--set", "optimizer.lr=1e38", "--set", "train.clip=0", "--set", "optimizer.weight_decay=0", "--set", "run.on_nonfinite=abort")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"sherd: step 2/\d+: loss is nan and gradient norm is nan; first in rank 0.s loss, in micro-step 0; its batch is in .*/alerts.jsonl; lower optimizer.lr or set train.clip\n")

    def test_the_step_that_ends_a_run_is_none_of_those_completed(self):
        done = sherd("train", self.job, "-n", "2", "--set", "optimizer.lr=1e38", "--set", "train.clip=0", "--set", "optimizer.weight_decay=0", "--set", "run.on_nonfinite=abort")
        self.assertEqual(done.returncode, 1)
        with open(os.path.join(self.folder.name, "stage3", "failure.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual((len(self.metrics()), report["step"], report["phase"]), (2, 1, "training"))
        self.assertRegex(done.stderr, r"  when      training, after step 1, ")

    def test_one_stop_ends_a_job_whose_steps_do_not_end(self):
        job = self.start_long_job(options=("--stop-timeout", "1"))
        victim = self.ranks_of(job.pid)[1]
        os.kill(victim, signal.SIGSTOP)
        time.sleep(0.2)
        began = time.time()
        job.terminate()
        self.assertEqual(job.wait(timeout=10), 143)
        self.assertGreater(time.time() - began, 0.9)
        self.assertRegex(job.stderr.read(), rf"stopped by signal 15 \(SIGTERM\); \d ranks?, first rank \d \(pid \d+\), had not ended after 1 s: killed")

    def test_one_stop_ends_a_single_rank_within_a_step(self):
        job = subprocess.Popen([SHERD, "train", self.job, "-n", "1", "--stop-timeout", "1", "--set", "train.global_batch=100000"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.stderr.close)
        self.assertIn("training", job.stderr.readline())
        time.sleep(0.5)
        job.terminate()
        self.assertEqual(job.wait(timeout=10), 143)
        self.assertIn("the step had not ended after 1 s", job.stderr.read())

    def test_a_stop_of_the_terminal_is_no_time_out(self):
        job = self.start_long_job(settings=("run.timeout_s=1.2",))
        rows = os.path.join(job.run_dir, "metrics.jsonl")
        job.send_signal(signal.SIGTSTP)
        time.sleep(0.5)
        before = os.path.getsize(rows)
        time.sleep(2)
        self.assertEqual(os.path.getsize(rows), before)
        job.send_signal(signal.SIGCONT)
        deadline = time.time() + 10
        while os.path.getsize(rows) == before and time.time() < deadline:
            time.sleep(0.02)
        self.assertGreater(os.path.getsize(rows), before)
        job.terminate()
        self.assertEqual(job.wait(timeout=10), 143)

    def test_usr1_saves_and_goes_on(self):
        for to_rank in (None, 0, 1):
            job = self.start_long_job(settings=("checkpoint.every=0",))
            os.kill(job.pid if to_rank is None else self.ranks_of(job.pid)[to_rank], signal.SIGUSR1)
            found = wait_for(lambda: steps_in(os.path.join(job.run_dir, "checkpoints")))
            rows = os.path.join(job.run_dir, "metrics.jsonl")
            before = os.path.getsize(rows)
            self.assertTrue(wait_for(lambda: os.path.getsize(rows) > before + 1000), "training has ended")
            # One request is one, though the launcher's ranks hear it at different times.
            self.assertEqual(steps_in(os.path.join(job.run_dir, "checkpoints")), found)
            job.terminate()
            self.assertEqual(job.wait(timeout=10), 143)
            self.assertRegex(job.stderr.read(), r"sherd: saved \S+/step-\d{8}: [0-9.]+ of [0-9.]+ [KM]iB, in [0-9.]+ s\n")

    def test_one_rank_that_is_told_stops_all_when_they_have_saved(self):
        job = self.start_long_job(settings=("checkpoint.every=0",))
        pid = self.ranks_of(job.pid)[1]
        os.kill(pid, signal.SIGTERM)
        self.assertEqual(job.wait(timeout=20), 143)
        said = job.stderr.read()
        self.assertIn("nothing is lost", said)
        self.assertIn(f"sherd: rank 1 of 2 (pid {pid}) was stopped by signal 15 (SIGTERM)", said)
        self.assertNotIn("failed", said)
        self.assertEqual(len(steps_in(os.path.join(job.run_dir, "checkpoints"))), 1)

    def test_a_request_that_comes_twice_at_once_is_one(self):
        """As `timeout` does: to its child, and to the group that the child is in."""
        for ranks in ("1", "2"):
            job = self.start_long_job(ranks, settings=("checkpoint.every=0",))
            for _ in range(5):
                job.send_signal(signal.SIGTERM)
                time.sleep(0.002)
            self.assertEqual(job.wait(timeout=20), 143)
            self.assertIn("nothing is lost", job.stderr.read())

    def test_a_job_that_cannot_save_says_so_and_does_not_exit_with_0(self):
        for ranks, on_error in (("1", "stop"), ("2", "stop"), ("2", "fail")):
            job = self.start_long_job(ranks, settings=("checkpoint.every=1", f"checkpoint.on_error={on_error}"))
            folder = os.path.join(job.run_dir, "checkpoints")
            self.assertTrue(wait_for(lambda: steps_in(folder)))
            os.rename(folder, folder + "-before")
            with open(folder, "w"):
                pass
            self.assertEqual(job.wait(timeout=30), 1)
            said = job.stderr.read()
            self.assertRegex(said, r"step \d+ could not be saved: ")
            self.assertIn(f"and the run ends: checkpoint.on_error is stop" if on_error == "stop" else "the run ends: checkpoint.on_error is fail", said)
            self.assertTrue(steps_in(folder + "-before"))

    def test_minutes_between_checkpoints_are_counted(self):
        job = self.start_long_job(settings=("checkpoint.every=0", "checkpoint.every_minutes=0.005", "checkpoint.keep=0"))
        self.assertTrue(wait_for(lambda: len(steps_in(os.path.join(job.run_dir, "checkpoints"))) >= 3))
        job.terminate()
        self.assertEqual(job.wait(timeout=20), 143)


def caught(pid):
    """The signals for which a process has handlers, as bits."""
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"(?m)^SigCgt:\s*([0-9a-f]+)$", file.read())[1], 16)


def wait_for(condition, timeout=20):
    deadline = time.time() + timeout
    while time.time() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    return None


def steps_in(folder):
    """The complete checkpoints."""
    return sorted(name for name in os.listdir(folder) if re.fullmatch(r"step-\d{8}", name)) if os.path.isdir(folder) else []


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


if __name__ == "__main__":
    SHERD, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
