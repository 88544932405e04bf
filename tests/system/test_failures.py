#!/usr/bin/env python3
"""What can go wrong with a job, one row each, and what happens then.

usage: test_failures.py SHERD [--all] [--variants N] [--hang PATH] [--fail-io PATH] [--only PATTERN] [--table]

Ranks and launchers are killed by every signal while the job starts, trains, evaluates and saves; ranks crash, leave,
hang in their data, a product or a collective, are stopped and go on; files cannot be read, jobs and data are wrong,
disks are full, nodes are lost, the store is attacked.  Of each: how long until all was over, the exit code, who was
named, in words and in failure.json; nothing may be left, and the job started again must go on from the newest whole
checkpoint, none older than before, with the numbers of a job that nobody disturbed.

The default form takes seconds: one variant of some rows.  --all: all rows, with every rank or every phase in turn.
--hang and --fail-io: hang.c and fail_io.c, compiled; without them the rows that need them are left out.
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from checkpoints import complete, failing
from jobs import DISK, Failure, Job, need, read, write_files
from test_checkpoint_disk import INSIDE, Skipped, SmallDisk
import test_launch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../comm"))
from store_client import Client, Refused  # noqa: E402

RANKS = 4
EVERY = 2       # steps from save to save; a save is over before the next one begins
STEPS = 200     # of the undisturbed job, with which others are compared as far as it goes
LIMIT_S = 20    # until a job that has failed is over, on a machine that may be busy; the table has what it took
PATIENCE_S = 30 # until the end of a step, and of a save, on a machine that is busy
TIMEOUT_S = 2   # run.timeout_s where ranks hang
SAVES = [f"checkpoint.every={EVERY}", "checkpoint.keep=2"]
# Settings, rows to wait for: from the second on every phase has been gone through. How long after that to strike.
PHASES = {"start": ([], 0), "steps": ([], 5), "evaluation": (["train.evaluate_every=1"], 3), "save": (["checkpoint.every=1"], 3)}


class Outcome:
    """What happened: seconds, the exit code, what was said of the culprit, steps that had to be made again."""

    def __init__(self, took, code, named, lost=None):
        self.took, self.code, self.named, self.lost = took, code, named, lost


class Bench:
    def __init__(self, arguments, folder):
        self.sherd, self.folder = os.path.abspath(arguments.sherd), folder
        self.hang, self.fail_io = arguments.hang, arguments.fail_io
        self.job, self.count = write_files(folder), 0
        with Job(self.sherd, self.job, 1, [f"train.steps={STEPS}"]) as job:  # the bits of any number of ranks
            need(job.wait(60) == 0, f"the undisturbed job failed: {job.said()}")
            self.expected = numbers(job)
        need(len(self.expected) == STEPS, "rows are missing")

    def start(self, settings=(), **more):
        return Job(self.sherd, self.job, RANKS, [*SAVES, *settings], **more)

    def new_folder(self):
        self.count += 1
        path = os.path.join(self.folder, f"case{self.count}")
        os.mkdir(path)
        return path


def numbers(job):
    lines = job.rows().split("\n")[:-1]  # what is behind the last end of a line is a torn row
    return [(row["step"], row["loss"], row["grad_norm"]) for row in map(json.loads, lines)]


def saved(job):
    return (complete(f"{job.run_dir}/checkpoints") or [0])[-1]


def report(job):
    text = read(f"{job.run_dir}/failure.json")
    return json.loads(text) if text else None


def line_with(pattern, said):
    found = re.search(pattern, said)
    need(found, f"does not say '{pattern}': {said}")
    line = said[said.rfind("\n", 0, found.start()) + 1:].split("\n")[0]
    return re.sub(r"/\S+/(?=[^/\s]+\b)|\(pid \d+\)|^sherd: ", "", re.sub(r" +", " ", line))


def over(job, began, limit_s):
    code = job.wait(limit_s)
    job.need_nothing_left(began + limit_s + 1)
    return time.monotonic() - began, code


def steps_lost(bench, job, before):
    """Starts the job again: it must go on from the newest checkpoint, with the numbers of the undisturbed one."""
    done, newest = len(numbers(job)), saved(job)
    need(newest >= before, f"step {before} was saved, and now the newest checkpoint is that of step {newest}")
    need(done - newest <= 2 * EVERY, f"{done} steps were done, and {newest} of them are saved")
    steps = max(done, newest) + 2
    with bench.start([f"train.steps={steps}"], run_dir=job.run_dir) as again:
        code, said = again.wait(60), again.said()
        need(code == 0, f"started again: exit code {code}: {said}")
        need(not newest or f"step-{newest:08d}: {newest} of {steps} steps are done" in said, f"went on from elsewhere than step {newest}: {said}")
        got = numbers(again)
        need(len(got) == steps and got[:STEPS] == bench.expected[:steps], "other numbers than of a job left alone")
    return max(0, done - newest)


@contextlib.contextmanager
def running(bench, phase, settings=(), **more):
    """A job in some phase, and the step that it had saved by then."""
    own, rows = PHASES[phase]
    with bench.start([*own, *settings], **more) as job:
        if rows:
            job.wait_for_rows(rows)
        yield job


def name_of(number):
    return int(number) if number == signal.SIGRTMAX else number.name[3:]  # real-time signals have no names


def killed(job, rank, pid, number, said):
    """Words and failure.json name the rank, and nobody else."""
    named = line_with(rf"rank {rank} of {RANKS} \(pid {pid}\) was (killed|stopped) by signal {int(number)}\b", said)
    need(len(re.findall(r"rank \d+ of \d+ \(pid", said)) == 1, f"others are blamed too: {said}")
    told = report(job)
    need(told and (told["rank"], told["pid"], told["lost_another_rank"]) == (rank, pid, False), f"failure.json: {told}")
    need(told["signal"] == name_of(number) or told["exit_code"] == 128 + number, f"failure.json: {told}")
    events = [json.loads(line) for line in read(f"{job.run_dir}/events.jsonl").decode().splitlines()]
    failures = [(event["rank"], event["text"]) for event in events if event["event"] == "failure"]
    ended = f"ended by signal {int(number)}{'' if number == signal.SIGRTMAX else f' (SIG{name_of(number)})'}"
    need(not told["signal"] or failures == [(rank, ended)], f"events.jsonl: {failures}")
    return named


# --- ranks ------------------------------------------------------------------------------------------------------------

def rank_killed(bench, number, phase, i):
    rank = i % RANKS
    phase = phase or list(PHASES)[(i + 1) % len(PHASES)]
    with running(bench, phase) as job:
        pid = job.wait_for_rank(rank)
        before, began = saved(job), time.monotonic()
        need(job.signal(pid, number), f"rank {rank} was gone: {job.said()}")
        took, code = over(job, began, LIMIT_S)
        need(code == 4, f"exit code {code}: {job.said()}")
        named = killed(job, rank, pid, number, job.said())
        return Outcome(took, code, named, steps_lost(bench, job, before))


def rank_told(bench, number, _, i):
    """A stop that only one rank gets: all stop together, and nothing is lost."""
    rank, phase = i % RANKS, list(PHASES)[(i + 1) % len(PHASES)]
    with running(bench, phase) as job:
        pid = job.wait_for_rank(rank)
        before, began = saved(job), time.monotonic()
        need(job.signal(pid, number), f"rank {rank} was gone: {job.said()}")
        took, code = over(job, began, PATIENCE_S)
        # One that has not come so far as to take signals is killed by them.
        need(code == 128 + number or (phase == "start" and code == 4), f"exit code {code}: {job.said()}")
        named = killed(job, rank, pid, number, job.said())
        lost = steps_lost(bench, job, before)
        need(phase == "start" or lost == 0, f"{lost} steps were lost: {job.said()}")
        return Outcome(took, code, named, lost)


def launcher_killed(bench, number, phase, i):
    with running(bench, phase or list(PHASES)[(i + 1) % len(PHASES)]) as job:
        if i % 2:
            job.wait_for_rank(i % RANKS)
        job.rank_pids()
        before, began = saved(job), time.monotonic()
        job.launcher.send_signal(number)
        took, code = over(job, began, LIMIT_S)
        need(code == -number, f"exit code {code}: {job.said()}")
        return Outcome(took, 128 + number, "nobody is left to say it", steps_lost(bench, job, before))


def launcher_told(bench, number, _, i):
    phase = list(PHASES)[(i + 1) % len(PHASES)]
    with running(bench, phase) as job:
        job.wait_until_handled(number)
        before, began = saved(job), time.monotonic()
        job.launcher.send_signal(number)
        took, code = over(job, began, PATIENCE_S)
        need(code == 128 + number, f"exit code {code}: {job.said()}")
        need(not report(job) and "failed" not in job.said(), f"a stop is no failure: {job.said()}")
        saves = number != signal.SIGQUIT and phase != "start"
        named = line_with(r"the newest checkpoint is .*nothing is lost" if saves else r"stopped by signal|no step", job.said())
        lost = steps_lost(bench, job, before)
        need(not saves or lost == 0, f"{lost} steps were lost: {job.said()}")
        return Outcome(took, code, named, lost)


def ignored(bench, number, who, i):
    """USR2, by which schedulers announce an end: it means nothing to a job, whoever of it gets it, and wherever it is."""
    with running(bench, list(PHASES)[i % len(PHASES)], ["train.steps=20"]) as job:
        pid = job.wait_for_rank(i % RANKS)
        began = time.monotonic()
        need(job.signal(job.launcher.pid if who == "launcher" else pid, number), "it was gone")
        code = job.wait(60)
        took = time.monotonic() - began
        need(code == 0 and numbers(job) == bench.expected[:20], f"exit code {code}, or other numbers: {job.said()}")
        need(not report(job), f"something failed: {job.said()}")
        job.need_nothing_left(time.monotonic() + 1)
        return Outcome(took, code, "goes on to its end, with the same bits", 0)


def all_at_one_blow(bench, *_):
    with running(bench, "steps") as job:
        victims = [job.launcher.pid, *job.rank_pids().values()]
        before, began = saved(job), time.monotonic()
        for pid in victims:
            job.signal(pid, signal.SIGKILL)
        took, code = over(job, began, LIMIT_S)
        return Outcome(took, 128 - code, "nobody is left to say it", steps_lost(bench, job, before))


def preloaded(bench, where, rank):
    if not bench.hang:
        raise Skipped("without --hang")
    trigger = os.path.join(bench.new_folder(), "now")
    return {"LD_PRELOAD": bench.hang, "SHERD_TEST_HANG": f"{where}:{rank}:{trigger}"}, trigger


def rank_ends(bench, where, wanted, i):
    """A rank that crashes by itself, or leaves without a word, in the middle of a product."""
    rank = (2 + i) % RANKS
    code_wanted, words = wanted
    environment, trigger = preloaded(bench, where, rank)
    with running(bench, "steps", environment=environment) as job:
        pid = job.wait_for_rank(rank)
        before, began = saved(job), time.monotonic()
        open(trigger, "w").close()
        took, code = over(job, began, LIMIT_S)
        need(code == code_wanted, f"exit code {code}: {job.said()}")
        named = line_with(rf"rank {rank} of {RANKS} \(pid {pid}\) {words}", job.said())
        told = report(job)
        need(told and (told["rank"], told["pid"], told["lost_another_rank"]) == (rank, pid, False), f"failure.json: {told}")
        return Outcome(took, code, named, steps_lost(bench, job, before))


def rank_hangs(bench, where, words, i):
    rank = (2 + i) % RANKS
    environment, trigger = preloaded(bench, where, rank) if where != "stopped" else ((), None)
    settings = ["train.evaluate_every=1", "checkpoint.every=1"] if where == "evaluation" else []
    with running(bench, "steps", [f"run.timeout_s={TIMEOUT_S}", *settings], environment=environment) as job:
        pid = job.wait_for_rank(rank)
        before, began = saved(job), time.monotonic()
        if trigger:
            open(trigger, "w").close()
        else:
            need(job.signal(pid, signal.SIGSTOP), f"rank {rank} was gone")
        took, code = over(job, began, TIMEOUT_S + LIMIT_S)
        need(code == 4, f"exit code {code}: {job.said()}")
        need("by KILL" not in job.said(), f"the rank that was given up was waited for: {job.said()}")
        named = line_with(rf"rank \d waited {TIMEOUT_S} s in [A-Z_]+[^\n]* for rank {rank} \(last issued [^()]*\([^()]*\), collective \d+\): pid {pid} {words}", job.said())
        told = report(job)
        need(told and (told["lost_another_rank"] or told["rank"] == rank), f"failure.json blames another rank: {told}")
        need((told["phase"] == "evaluating") == (where == "evaluation"), f"failure.json has it elsewhere: {told}")
        need(f"rank {rank} " in " ".join(str(told[key]) for key in ("cause", "noticed", "error")), f"failure.json does not name rank {rank}: {told}")
        return Outcome(took, code, named, steps_lost(bench, job, before))


def rank_pauses(bench, who, _, i):
    """For less than the time-out: nothing is said, nothing changes."""
    with running(bench, "steps", ["train.steps=60", "run.timeout_s=20"]) as job:
        pid = job.launcher.pid if who == "launcher" else job.wait_for_rank((2 + i) % RANKS)
        need(job.signal(pid, signal.SIGSTOP), "it was gone")
        time.sleep(1)
        began = time.monotonic()
        need(job.signal(pid, signal.SIGCONT), "it did not stay")
        code = job.wait(60)
        took = time.monotonic() - began
        need(code == 0 and numbers(job) == bench.expected[:60], f"exit code {code}, or other numbers: {job.said()}")
        need("waited" not in job.said() and not report(job), f"something was tripped: {job.said()}")
        job.need_nothing_left(time.monotonic() + 1)
        return Outcome(took, code, "goes on to its end, with the same bits", 0)


def restarted(bench, _, __, i):
    rank = (1 + i) % RANKS
    with running(bench, "steps", ["train.steps=20"], options=["--max-restarts", "1", "--restart-delay", "0.1"]) as job:
        pid = job.wait_for_rank(rank)
        need(job.signal(pid, signal.SIGKILL), "it was gone")
        began = time.monotonic()
        code = job.wait(60)
        took = time.monotonic() - began
        need(code == 0, f"exit code {code}: {job.said()}")
        line_with(rf"rank {rank} of {RANKS} \(pid {pid}\) was killed by signal 9", job.said())
        named = line_with(r"restart 1 of 1", job.said())
        need(numbers(job) == bench.expected[:20], "other numbers")
        job.need_nothing_left(time.monotonic() + 1)
        return Outcome(took, code, named)


def edited(bench, _, __, i):
    """Restarts train the job that was checked, whatever its file says by then."""
    folder = bench.new_folder()
    path = os.path.join(folder, "job.yaml")
    shutil.copy(bench.job, path)
    settings = [*SAVES, "train.steps=20"]
    with Job(bench.sherd, path, RANKS, settings, options=["--max-restarts", "1", "--restart-delay", "0.1"]) as job:
        job.wait_for_rows(5)
        pid = job.wait_for_rank(1)
        text = read(path).decode()
        with open(path, "w") as file:
            file.write("not a job" if i else text.replace("lr: 1.0e-3", "lr: 0.5"))
        need(job.signal(pid, signal.SIGKILL), "it was gone")
        began = time.monotonic()
        code = job.wait(60)
        took = time.monotonic() - began
        need(code == 0, f"exit code {code}: {job.said()}")
        named = line_with(r"restart 1 of 1", job.said())
        need(numbers(job) == bench.expected[:20], "other numbers than of the job that was started")
        job.need_nothing_left(time.monotonic() + 1)
        return Outcome(took, code, named)


def program_ends(bench, script, wanted, i):
    """Ranks of `sherd run`."""
    code_wanted, words = wanted
    folder, logs = bench.new_folder(), bench.new_folder()
    with test_launch.Launcher(bench, folder, ["-n", str(RANKS), "--log-dir", logs, "-r", "3"], script) as launcher:
        code = launcher.end(LIMIT_S + 5)
        took = time.monotonic() - launcher.began
        test_launch.need_nothing_left(launcher)
        need(code == code_wanted, f"exit code {code}: {launcher.said()}")
        told = json.loads(read(f"{logs}/failure.json"))
        need(told["rank"] == 2, f"failure.json: {told}")
        return Outcome(took, code, line_with(rf"rank 2 of {RANKS} \(pid \d+\) {words}", launcher.said()))


# --- files, jobs, disks -----------------------------------------------------------------------------------------------

def unreadable(bench, *_):
    """Training data that one rank can no longer read."""
    environment, trigger = preloaded(bench, "unreadable", 2)
    with running(bench, "steps", environment=environment) as job:
        before, began = saved(job), time.monotonic()
        open(trigger, "w").close()
        took, code = over(job, began, LIMIT_S)
        need(code in (1, 3), f"exit code {code}: {job.said()}")
        named = line_with(r"train\.txt: .*(Input/output error|EIO)", job.said())
        told = report(job)
        need(told and (told["rank"], told["exit_code"]) == (2, code) and "train.txt" in str(told["cause"]) + str(told["error"]), f"failure.json: {told}")
        return Outcome(took, code, named, steps_lost(bench, job, before))


def refused(bench, settings, wanted, _):
    code_wanted, words = wanted
    with bench.start(settings) as job:
        began = time.monotonic()
        took, code = over(job, began, LIMIT_S)
        need(code == code_wanted, f"exit code {code}: {job.said()}")
        return Outcome(took, code, line_with(words, job.said()))


def damaged(bench, *_):
    """A flipped byte in a checkpoint that the job is to go on from."""
    with bench.start(["train.steps=2"]) as job:
        need(job.wait(60) == 0, job.said())
    path = f"{job.run_dir}/checkpoints/step-00000002/rank-00001.bin"
    with open(path, "r+b") as file:
        file.seek(5000)
        byte = file.read(1)[0]
        file.seek(5000)
        file.write(bytes([byte ^ 1]))
    with bench.start(["train.steps=4"], run_dir=job.run_dir) as again:
        began = time.monotonic()
        took, code = over(again, began, LIMIT_S)
        need(code == 3, f"exit code {code}: {again.said()}")
        return Outcome(took, code, line_with(r"rank-00001\.bin.*damaged", again.said()))


def disk_error(bench, error, words, i):
    """From some call on, rank i's writes of checkpoints fail. The job ends at the third save that is lost."""
    if not bench.fail_io:
        raise Skipped("without --fail-io")
    folder, run_dir = bench.new_folder(), bench.new_folder()
    with bench.start([f"checkpoint.dir={folder}", "train.steps=4"], run_dir=run_dir) as job:
        need(job.wait(60) == 0, f"before the disk fails: {job.said()}")
    with bench.start([f"checkpoint.dir={folder}", "train.steps=100"], run_dir=run_dir, environment=failing(bench.fail_io, error, 60, i % RANKS, folder)) as job:
        began = time.monotonic()
        took, code = over(job, began, PATIENCE_S)
        need(code == 1, f"exit code {code}: {job.said()}")
        named = line_with(words, job.said())
        told = report(job)
        need(told and told["rank"] == i % RANKS and told["cause"], f"failure.json blames another rank: {told}")
        newest = (complete(folder) or [0])[-1]
        done = len(numbers(job))
        need(newest >= 4 and done - newest <= 5 * EVERY, f"{done} steps done, saved are {complete(folder)}: {job.said()}")
        need(numbers(job) == bench.expected[:done], "other numbers")
    with bench.start([f"checkpoint.dir={folder}", f"train.steps={newest + 2}"], run_dir=run_dir) as again:
        need(again.wait(60) == 0 and f"step-{newest:08d}: {newest} of " in again.said(), f"started again: {again.said()}")
    return Outcome(took, code, named, done - newest)


def full_disk(bench, what, _, i):
    """A disk with room for some checkpoints, or for nothing but the beginnings of a log."""
    with SmallDisk(bench, 4 << 20 if what == "checkpoint" else 1 << 20) as disk:
        settings = [f"checkpoint.dir={disk}/c", "checkpoint.keep=0", "train.steps=100"] if what == "checkpoint" else ["train.steps=100"]
        run_dir = bench.new_folder() if what == "checkpoint" else f"{disk}/run"
        with bench.start(settings, run_dir=run_dir) as job:
            began = time.monotonic()
            took, code = over(job, began, PATIENCE_S)
            need(code == 1, f"exit code {code}: {job.said()}")
            named = line_with(r"No space left on device", job.said())
            return Outcome(took, code, named)


# --- nodes ------------------------------------------------------------------------------------------------------------

WAIT = "echo up >$DIR/up$RANK; sleep 60"


def node_lost(bench, victim, how, _):
    """Of three; silent: its launcher stands still, as behind a cut wire."""
    with test_launch.Nodes(bench, [WAIT] * 3, ranks=1) as nodes:
        test_launch.wait_for(nodes.folder, "up0", "up1", "up2")
        began = time.monotonic()
        nodes.launchers[victim].process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        for n, launcher in enumerate(nodes.launchers):
            if n != victim:
                code = launcher.end(10)
                need(code == 1, f"exit code {code}: {launcher.said()}")
                named = line_with(rf"node {victim} \(\S+\) (is lost|cannot be reached)", launcher.said())
        took = time.monotonic() - began
        if how != "killed":
            nodes.launchers[victim].process.send_signal(signal.SIGCONT)
            need(nodes.launchers[victim].end(10) != 0, "the silent node thinks that all is well")
        test_launch.need_nothing_left(nodes.launchers[0])
        return Outcome(took, 1, re.sub(r"\(\S+?\)", "(host)", named, count=1))


def besiege(port, until):
    """Port scans, garbage, half-open connections, other secrets, tampered frames; returns how many of them were made."""
    count, open_ones = 0, []
    while not until.is_set():
        try:
            for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", b"sherd-kv" + bytes(80), os.urandom(4096)):
                with socket.create_connection(("127.0.0.1", port), timeout=2) as one:
                    one.sendall(garbage)
                count += 1
            open_ones.append(socket.create_connection(("127.0.0.1", port), timeout=2))
            if len(open_ones) > 200:
                open_ones.pop(0).close()
            try:
                Client("127.0.0.1", port, b"attacked", b"not the secret", timeout=2)
                return -1
            except Refused:
                count += 1
            thief = Client("127.0.0.1", port, b"attacked", test_launch.SECRET.encode(), join=False, timeout=2)  # knows it, and forges a frame
            thief.up = bytes(32)
            thief.socket.sendall(thief.frame(thief.body(0)))
            if thief.socket.recv(1):
                return -1
            thief.close()
            count += 2
        except (OSError, EOFError, AssertionError):
            count += 1  # not served, as it should be
        except Exception:  # the client's Closed: turned away
            count += 1
        time.sleep(0.002)
    for one in open_ones:
        one.close()
    return count


def store_attacked(bench, when, *_):
    """The job of two nodes meets and runs through it, and says who knocked."""
    script = "echo up >$DIR/up$RANK; sleep 2"
    stop, made = threading.Event(), []
    with test_launch.Nodes(bench, [script] * 2, ["--rdzv-id", "attacked"], ranks=2, more=[[], []]) as nodes:
        if when == "running":
            test_launch.wait_for(nodes.folder, "up0", "up1", "up2", "up3")
        siege = threading.Thread(target=lambda: made.append(besiege(nodes.port, stop)))
        began = time.monotonic()
        siege.start()
        try:
            for launcher in nodes.launchers:
                launcher.need_end(0, within_s=20)
        finally:
            stop.set()
            siege.join()
        took = time.monotonic() - began
        test_launch.need_nothing_left(nodes.launchers[0])
        need(made[0] >= 0, "somebody without the secret was let in")
        need(made[0] > 20, f"only {made[0]} attacks were made")
        said = nodes.launchers[0].said()
        return Outcome(took, 0, line_with("strangers", said) + f" ({made[0]} attacks)")


# --- rows -------------------------------------------------------------------------------------------------------------

class Row:
    def __init__(self, what, function, first=None, second=None, times=1, sample=False):
        self.what, self.function, self.first, self.second, self.times, self.sample = what, function, first, second, times, sample


ROWS = [Row(f"a rank is killed by {number.name} ({phase})", rank_killed, number, phase, RANKS, (number, phase) == (signal.SIGKILL, "evaluation"))
        for number in (signal.SIGKILL, signal.SIGSEGV) for phase in PHASES]
ROWS += [Row(f"a rank is killed by {number.name}", rank_killed, number, None, RANKS)
         for number in (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGQUIT, signal.SIGALRM, signal.SIGRTMAX)]
ROWS += [Row(f"one rank alone gets {number.name}", rank_told, number, None, RANKS, number == signal.SIGTERM)
         for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
ROWS += [Row(f"the launcher is killed by SIGKILL ({phase})", launcher_killed, signal.SIGKILL, phase, 2, phase == "save") for phase in PHASES]
ROWS += [Row(f"the launcher is killed by {number.name}", launcher_killed, number, None, len(PHASES)) for number in (signal.SIGSEGV, signal.SIGABRT)]
ROWS += [Row(f"the launcher gets {number.name}", launcher_told, number, None, len(PHASES), number == signal.SIGINT)
         for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)]
ROWS += [
    Row("the launcher gets SIGUSR2", ignored, signal.SIGUSR2, "launcher", len(PHASES)),
    Row("one rank alone gets SIGUSR2", ignored, signal.SIGUSR2, "rank", len(PHASES), True),
    Row("launcher and ranks are killed at one blow", all_at_one_blow),
    Row("a rank of `train` exits with 3, without a word", rank_ends, "exit3", (3, "failed with exit code 3"), RANKS, True),
    Row("a rank of `train` exits with 0, early", rank_ends, "exit0", (4, "ended with exit code 0 before the others were done"), RANKS),
    Row("a rank segfaults in a product", rank_ends, "crash", (4, r"was killed by signal 11 \(SIGSEGV\)"), RANKS, True),
    Row("a rank of `run` exits with 3", program_ends, "[ $RANK = 2 ] && exit 3; sleep 60", (3, "failed with exit code 3"), 1, True),
    Row("a rank of `run` segfaults", program_ends, "[ $RANK = 2 ] && kill -SEGV $$; sleep 60", (139, "was killed by signal 11")),
    Row("a rank hangs in its data", rank_hangs, "data", r"sleeps in a system call[^\n]*, reading data for step \d+, since", 2),
    Row("a rank hangs in an evaluation", rank_hangs, "evaluation", r"sleeps in a system call[^\n]*, evaluating[^\n]*, since", 2),
    Row("a rank hangs in a product", rank_hangs, "compute", r"sleeps in a system call[^\n]*, in (FORWARD|BACKWARD) [a-z]+( \d)? of step \d+, since", 2),
    Row("a rank hangs in a collective", rank_hangs, "collective", r"sleeps in a system call[^\n]*, since", 2, True),
    Row("a rank is stopped (SIGSTOP)", rank_hangs, "stopped", r"is stopped \(SIGSTOP[^)]*\), [^\n]+, since [\d.]+ s", 2),
    Row("a rank is stopped for 1 s and goes on", rank_pauses, "rank", None, 2, True),
    Row("the launcher is stopped for 1 s and goes on", rank_pauses, "launcher"),
    Row("a rank is killed, with --max-restarts 1", restarted, times=2),
    Row("the same, and the job file was changed meanwhile", edited, times=2, sample=True),
    Row("training data unreadable on one rank, while it trains", unreadable, sample=True),
    Row("no training data", refused, ["data.train=/no/such/file"], (3, "/no/such/file.*No such file")),
    Row("a token beyond the vocabulary", refused, ["model.vocab_size=128"], (3, r"train\.txt: token \d+ at byte \d+ is not below model.vocab_size 128"), 1, True),
    Row("a job whose batch does not divide", refused, ["train.global_batch=7"], (2, "global_batch: 7"), 1, True),
    Row("a job with an unknown key", refused, ["train.stesp=9"], (2, "train.stesp: unknown key")),
    Row("a job too large for the machine", refused, ["model.d_model=1048576"], (2, "GiB, and this machine has")),
    Row("a flipped byte in the checkpoint to go on from", damaged),
    Row("saving meets ENOSPC, from then on", disk_error, "28+", "could not be saved: .*No space left on device", RANKS),
    Row("saving meets EIO, from then on", disk_error, "5+", "could not be saved: .*Input/output error", RANKS),
    Row("the disk of checkpoints is full", full_disk, "checkpoint", sample=True),
    Row("the disk of the run folder is full", full_disk, "run"),
    Row("a node's launcher is killed", node_lost, 1, "killed", 1, True),
    Row("the first node's launcher is killed", node_lost, 0, "killed"),
    Row("a node falls silent", node_lost, 1, "silent"),
    Row("the store is attacked while nodes meet", store_attacked, "meeting"),
    Row("the store is attacked while the job runs", store_attacked, "running", sample=True),
]


def run_row(bench, row, times):
    """Prints how it went; returns the line of the table, None where it failed."""
    began, outcomes = time.monotonic(), []
    try:
        for i in range(times):
            outcomes.append(row.function(bench, row.first, row.second, i))
    except Skipped as reason:
        print(f"{row.what}: skipped: {reason}", flush=True)
        return ""
    except (Failure, OSError, LookupError, ValueError) as failure:
        print(f"{row.what}: FAILED, variant {len(outcomes)}: {failure}", flush=True)
        return None
    print(f"{row.what}: held {times} times, {time.monotonic() - began:.1f} s", flush=True)
    codes = ", ".join(sorted({str(one.code) for one in outcomes}))
    lost = [one.lost for one in outcomes if one.lost is not None]
    return f"| {row.what} | {times} | {max(one.took for one in outcomes):.2f} | {codes} | {outcomes[0].named.replace('|', chr(92) + '|')} | none | {max(lost) if lost else '–'} |"


def check_rows(arguments):
    lines = []
    with tempfile.TemporaryDirectory(prefix="sherd-failures-", dir=DISK) as folder:
        bench = Bench(arguments, folder)
        for row in ROWS:
            if re.search(arguments.only, row.what) if arguments.only else (arguments.all or row.sample):
                lines.append(run_row(bench, row, min(row.times, arguments.variants) if arguments.all else 1))
    if arguments.table:
        print(f"\nOf {os.cpu_count()} processors, under a load of {os.getloadavg()[0]:.0f}, at nice {os.nice(0)}:")
        print("\n| what goes wrong | times | over after, s, at most | exit code | what is said | left behind | steps to make again, at most |\n"
              "| --- | --- | --- | --- | --- | --- | --- |")
        print("\n".join(line for line in lines if line))
    print(f"{len(lines)} rows, {lines.count(None)} failed, {lines.count('')} skipped")
    return None in lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd")
    parser.add_argument("--all", action="store_true", help="every row, in all its variants")
    parser.add_argument("--variants", type=int, default=RANKS, help="no more variants of a row than this, with --all")
    parser.add_argument("--hang", type=os.path.abspath, help="hang.c as a shared object")
    parser.add_argument("--fail-io", type=os.path.abspath, help="fail_io.c as a shared object")
    parser.add_argument("--only", help="rows whose names match this")
    parser.add_argument("--table", action="store_true", help="print what happened as a table")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside_namespace:
        own = ["unshare", "--mount", "--propagation", "private", "--"]
        if shutil.which("unshare") and subprocess.run([*own, "true"], capture_output=True).returncode == 0:
            sys.stdout.flush()
            os.execvp(own[0], [*own, sys.executable, *sys.argv, INSIDE])
    return check_rows(arguments)


if __name__ == "__main__":
    sys.exit(main())
