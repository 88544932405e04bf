#!/usr/bin/env python3
"""Ranks and launchers that die, hang or are told to stop, at any moment of a job.

usage: test_kills.py SHERD [--times N] [--seed N] [--table]

Kills every rank and the launcher, --times each (default 1), of jobs on 2 and 4 ranks at stage 0 and at stage 3 in both
gather modes, at random moments while the job starts, steps, evaluates or saves.  The job must be over within 5 s with
exit code 4, the dead rank named and no other; of a job whose launcher was killed nothing may be left either.  Left
means: a process, a mapping of the job's shared memory in any process, an abstract socket, a file of it in /dev/shm.
"""
import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time

from jobs import DISK, Failure, Job, need, read, run_checks, write_files

LAYOUTS = [(ranks, stage, gather) for ranks in (2, 4) for stage, gather in ((3, "shared"), (3, "copy"), (0, "auto"))]
# Settings that make a job spend nearly all its time in one phase, and how long after it was reached to strike, at most.
PHASES = {"start": ([], 0.08), "steps": ([], 0.1), "evaluation": (["train.evaluate_every=1"], 0.2), "save": (["checkpoint.every=1"], 0.1)}
LIMIT_S = 5
TIMEOUT_S = 2        # run.timeout_s of jobs in which a rank hangs
STOP_LIMIT_S = 20    # until the next step boundary, on a machine that may be busy
COMPLAINT = re.compile(r"rank \d+ (of|died|ended|waited)|rank \d+:|error|failed")


class Bench:
    """What all checks need, and what they have found."""

    def __init__(self, arguments, folder):
        self.sherd, self.times = os.path.abspath(arguments.sherd), arguments.times
        self.job = write_files(folder)
        self.random = random.Random(arguments.seed)
        self.slowest = {}

    def start(self, layout, settings=(), run_dir=None):
        ranks, stage, gather = layout
        return Job(self.sherd, self.job, ranks, [f"shard.stage={stage}", f"shard.gather={gather}", *settings], run_dir)

    def note(self, what, phase, seconds):
        count, longest = self.slowest.get((what, phase), (0, 0))
        self.slowest[what, phase] = (count + 1, max(longest, seconds))


def reach(bench, job, phase, rank):
    """Waits for the phase, and a random moment more; returns the pid of the rank."""
    if phase != "start":
        job.wait_for_rows(2)  # from the second row on every phase has been gone through
    pid = job.launcher.pid if rank is None else job.wait_for_rank(rank)
    time.sleep(bench.random.uniform(0, PHASES[phase][1]))
    job.rank_pids()
    return pid


def need_named(job, said, rank, pid, cause):
    need(f"sherd: rank {rank} of {job.ranks} (pid {pid}) was killed by {cause}" in said, f"rank {rank} is not named: {said}")
    need(len(re.findall(r"rank \d+ of \d+ \(pid", said)) == 1, f"others are blamed too: {said}")


def kill_rank(bench, layout, rank, phase, number=signal.SIGKILL, cause="signal 9 (SIGKILL)"):
    with bench.start(layout, PHASES[phase][0]) as job:
        pid = reach(bench, job, phase, rank)
        began = time.monotonic()
        need(job.signal(pid, number), f"rank {rank} was gone before it was killed: {job.said()}")
        code = job.wait(LIMIT_S)
        need(code == 4, f"exit code {code}: {job.said()}")
        need_named(job, job.said(), rank, pid, cause)
        job.need_nothing_left(began + LIMIT_S)
        bench.note("rank", phase, time.monotonic() - began)
        if phase == "save":
            need_resumes(bench, layout, job.run_dir)


def kill_launcher(bench, layout, phase):
    with bench.start(layout, PHASES[phase][0]) as job:
        reach(bench, job, phase, None)
        began = time.monotonic()
        job.launcher.kill()
        job.wait(LIMIT_S)
        job.need_nothing_left(began + LIMIT_S)
        bench.note("launcher", phase, time.monotonic() - began)
        if phase == "save":
            need_resumes(bench, layout, job.run_dir)


def need_resumes(bench, layout, run_dir):
    """A job killed while saving goes on from a whole checkpoint."""
    saved = [int(name[5:]) for name in os.listdir(f"{run_dir}/checkpoints") if re.fullmatch(r"step-\d{8}", name)]
    steps = max(saved) + 2
    with bench.start(layout, [f"train.steps={steps}"], run_dir) as again:
        code = again.wait(60)
        need(code == 0, f"resuming after a kill: exit code {code}: {again.said()}")
        need(f"step-{max(saved):08d}: {max(saved)} of {steps} steps are done" in again.said(), f"resumed from elsewhere: {again.said()}")


def check_kills(bench):
    order = list(PHASES)
    for layout in LAYOUTS:
        for rank in [*range(layout[0]), None]:
            for i in range(bench.times):
                # With fewer times than phases, the victims take the phases in turn.
                phase = order[(i + (rank if rank is not None else layout[0])) % len(order)]
                try:
                    if rank is None:
                        kill_launcher(bench, layout, phase)
                    else:
                        kill_rank(bench, layout, rank, phase)
                except Failure as failure:
                    raise Failure(f"{layout[0]} ranks, stage {layout[1]}, gather {layout[2]}, {phase}, victim "
                                  f"{'launcher' if rank is None else rank}: {failure}") from None


def check_crash(bench):
    kill_rank(bench, (2, 3, "copy"), 1, "steps", signal.SIGSEGV, "signal 11 (SIGSEGV)")
    kill_rank(bench, (4, 3, "shared"), 2, "steps", signal.SIGSEGV, "signal 11 (SIGSEGV)")


def check_hang(bench):
    """A rank that stops without dying: the others name it, the collective and the unit."""
    for layout, rank in (((2, 3, "shared"), 0), ((4, 3, "copy"), 2), ((2, 0, "auto"), 1)):
        with bench.start(layout, [f"run.timeout_s={TIMEOUT_S}"]) as job:
            pid = reach(bench, job, "steps", rank)
            began = time.monotonic()
            need(job.signal(pid, signal.SIGSTOP), "the rank was gone")
            code, said = job.wait(TIMEOUT_S + LIMIT_S), job.said()
            need(code == 4, f"exit code {code}: {said}")
            told = re.search(rf"rank (\d+) waited {TIMEOUT_S} s in ([^:\n]+) for (rank .*)", said)
            need(told and int(told[1]) != rank, f"nobody says whom it waits for: {said}")
            need(re.search(rf"rank {rank} \(last issued [A-Z_]+( [^()]+)? \(\d+ bytes\), collective \d+\)", told[3]),
                 f"not rank {rank} and its last collective: {said}")
            need(f"rank {told[1]} (" not in told[3], f"a rank says that it waits for itself: {said}")
            need(time.monotonic() - began >= TIMEOUT_S, "before the time-out")
            job.need_nothing_left(began + TIMEOUT_S + LIMIT_S)
            bench.note("stopped rank", "steps", time.monotonic() - began - TIMEOUT_S)


STEPS = 600


def numbers(job):
    return [(row["step"], row["loss"], row["grad_norm"]) for row in map(json.loads, job.rows().splitlines())]


def whole_run(bench, layout):
    with bench.start(layout, [f"train.steps={STEPS}"]) as job:
        code = job.wait(60)
        need(code == 0, f"exit code {code}: {job.said()}")
        return numbers(job)


def check_pause(bench, expected):
    """Ranks that pause within the time-out change nothing."""
    for layout in ((2, 3, "copy"), (4, 3, "shared")):
        with bench.start(layout, [f"train.steps={STEPS}", "run.timeout_s=20"]) as job:
            pauses = 0
            for rank in range(layout[0]):
                pid = job.rank_pids().get(rank) if pauses else job.wait_for_rank(rank)
                time.sleep(bench.random.uniform(0, 0.05))
                if pid is None or not job.signal(pid, signal.SIGSTOP):
                    break  # the job is over
                time.sleep(bench.random.uniform(0.1, 0.4))
                need(job.signal(pid, signal.SIGCONT), "a stopped rank vanished")
                pauses += 1
            need(pauses > 0, "over before a rank was stopped")
            code = job.wait(60)
            need(code == 0, f"exit code {code}: {job.said()}")
            need(numbers(job) == expected, "a pause changed the numbers")


def check_stop(bench, expected):
    """TERM, INT and HUP: all ranks stop at one step boundary; started again the job ends with the same bits."""
    for number, name, layout in ((signal.SIGTERM, "SIGTERM", (2, 3, "shared")), (signal.SIGINT, "SIGINT", (4, 3, "copy")),
                                 (signal.SIGHUP, "SIGHUP", (2, 0, "auto"))):
        with bench.start(layout) as job:
            reach(bench, job, "steps", None)
            began = time.monotonic()
            job.launcher.send_signal(number)
            code, said = job.wait(STOP_LIMIT_S), job.said()
            need(code == 128 + number, f"exit code {code}: {said}")
            need(f"sherd: stopped by signal {int(number)} ({name})" in said, f"does not say what stopped it: {said}")
            need("no checkpoint was saved: the " in said or "the newest checkpoint is " in said, f"does not say that nothing was saved: {said}")
            need(not COMPLAINT.search(said), f"ranks complain: {said}")
            need(job.rows().endswith("}\n"), "a torn row")
            job.need_nothing_left(began + STOP_LIMIT_S)
            bench.note("stop", "steps", time.monotonic() - began)
            done = numbers(job)
            need(done[:STEPS] == expected[:len(done)], "the numbers before the stop are others")
        with bench.start(layout, [f"train.steps={STEPS}"], job.run_dir) as again:
            code = again.wait(60)
            need(code == 0 and numbers(again) == expected, f"started again: exit code {code}: {again.said()}")


def check_stop_at_start(bench):
    """A stop while ranks start and meet: they end, whatever each of them had reached."""
    for i in range(max(8, 2 * bench.times)):
        layout = LAYOUTS[i % len(LAYOUTS)]
        with bench.start(layout) as job:
            if i % 2:
                job.wait_for_rank(bench.random.randrange(layout[0]))
            time.sleep(bench.random.uniform(0, 0.06))
            began = time.monotonic()
            job.launcher.send_signal(signal.SIGTERM)
            code, said = job.wait(STOP_LIMIT_S), job.said()
            # Before the launcher watches signals, TERM ends it as it ends any program.
            need(code in (128 + signal.SIGTERM, -signal.SIGTERM), f"exit code {code}: {said}")
            need(not COMPLAINT.search(said), f"ranks complain: {said}")
            job.need_nothing_left(began + STOP_LIMIT_S)
            bench.note("stop", "start", time.monotonic() - began)


def check_second_stop(bench):
    """A rank hangs, so the first TERM cannot stop the job together; the second one kills it."""
    for layout in ((2, 3, "shared"), (4, 0, "auto")):
        with bench.start(layout) as job:
            pid = reach(bench, job, "steps", 1)
            need(read(f"/proc/{pid}/comm") == b"sherd-rank-1\n", "ps and top do not tell which rank it is")
            need(job.signal(pid, signal.SIGSTOP), "the rank was gone")
            job.launcher.terminate()
            time.sleep(0.5)
            need(job.launcher.poll() is None, f"over, though a rank hangs: {job.said()}")
            began = time.monotonic()
            job.launcher.terminate()
            code, said = job.wait(LIMIT_S), job.said()
            need(code == 128 + signal.SIGTERM, f"exit code {code}: {said}")
            need("stopped by signal 15 (SIGTERM)" in said, f"does not say what stopped it: {said}")
            job.need_nothing_left(began + LIMIT_S)
            bench.note("second stop", "steps", time.monotonic() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one check by name")
    parser.add_argument("--table", action="store_true", help="print what was done and how long the longest took")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sherd-kills-", dir=DISK) as folder:
        bench = Bench(arguments, folder)
        expected = whole_run(bench, (2, 3, "shared"))
        need(len(expected) == STEPS, "rows are missing")
        checks = {"kills": check_kills, "crash": check_crash, "hang": check_hang, "pause": lambda b: check_pause(b, expected),
                  "stop": lambda b: check_stop(b, expected), "stop-at-start": check_stop_at_start, "second-stop": check_second_stop}
        failed = run_checks(checks, arguments.only, bench)
        if arguments.table:
            print("| what | phase | times | longest until all was gone, s |\n| --- | --- | --- | --- |")
            for (what, phase), (count, longest) in bench.slowest.items():
                print(f"| {what} | {phase} | {count} | {longest:.2f} |")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
