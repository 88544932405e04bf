#!/usr/bin/env python3
"""Ranks that hang, and what their job says of them.

usage: test_hang.py SHERD [--hang PATH] [--only NAME] [--timeout SECONDS] [--table]

stop: rank 2 of 4 is stopped (SIGSTOP) in the middle of training.  Within 5 seconds after run.timeout_s the job is over, and has named rank 2,
the collective and the unit that the others waited in, and what rank 2 was doing; its dumps are there, and `sherd debug` names it too.

pause: the same for less than the time-out, and it goes on: nothing is said, and every number is that of a job left alone.

start: a rank that is stopped before the ranks have met.

hang: a rank that never comes back from reading its data, or from a matrix product.  Needs hang.c, compiled, at --hang.

joined: the first, of ranks that another launcher has started, twice: the dumps of the attempt before stay.

kill: a rank that is killed while the job starts, trains, evaluates and saves: named, with where it was.

--timeout 10 gives the times of docs/DEBUGGING.md; the default takes seconds.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from jobs import LAUNCHER_VARIABLES, Job, need, read, run_checks, write_files

LIMIT_S = 5  # from the time-out until the job is over
STEPS = 400


class Bench:
    def __init__(self, arguments, folder):
        self.sherd = os.path.abspath(arguments.sherd)
        self.timeout_s = arguments.timeout
        self.hang = arguments.hang
        self.folder = folder
        self.job = write_files(folder)
        self.rows = []

    def start(self, ranks, settings=(), environment=()):
        return Job(self.sherd, self.job, ranks, settings, environment=environment)

    def debug(self, job, attempt=0):
        folder = f"{job.run_dir}/dumps/attempt_{attempt}"
        done = subprocess.run([self.sherd, "debug", folder, "--json"], capture_output=True, text=True)
        need(done.returncode == 0, f"sherd debug: exit code {done.returncode}: {done.stderr}")
        words = subprocess.run([self.sherd, "debug", folder], capture_output=True, text=True)
        need(words.returncode == 0 and words.stdout.startswith("verdict: "), f"sherd debug: {words.stdout}{words.stderr}")
        return json.loads(done.stdout)


def need_over(bench, job, began, timeout_s, code):
    got = job.wait(timeout_s + LIMIT_S + 5)
    took = time.monotonic() - began
    said = job.said()
    need(got == code, f"exit code {got}, not {code}: {said}")
    need(took <= timeout_s + LIMIT_S, f"over only after {took:.1f} s: {said}")
    job.need_nothing_left(time.monotonic() + 3)
    return took, said


def numbers(job):
    return [(row["step"], row["loss"], row["grad_norm"]) for row in map(json.loads, job.rows().splitlines())]


def check_stop(bench):
    for stage in (3, 0):
        with bench.start(4, [f"run.timeout_s={bench.timeout_s}", f"shard.stage={stage}"]) as job:
            job.wait_for_rows(5)
            pid = job.rank_pids()[2]
            began = time.monotonic()
            need(job.signal(pid, signal.SIGSTOP), "rank 2 was gone")
            took, said = need_over(bench, job, began, bench.timeout_s, 4)
            told = re.search(rf"rank [013] waited {bench.timeout_s} s in ([A-Z_]+)( [a-z]+( \d)?)? of step \d+ for rank 2 \(last issued [^()]*\([^()]*\), "
                             rf"collective \d+\): pid {pid} is stopped \(SIGSTOP[^)]*\), [^\n]+, since [\d.]+ s", said)
            need(told, f"rank 2 is not named with the collective, the unit and what it was doing: {said}")
            need(told[1] in ("COUNT", "EXCHANGE") or told[2], f"{told[1]} of no unit: {said}")
            found = bench.debug(job)
            need(found["verdict"] == "missing rank" and found["rank"] == 2 and found["dumps"] == 4, f"debug: {found}")
            stopped = found["ranks"][2]
            need(stopped["life"] == "stopped" and stopped["written_by"] != "itself" and stopped["events"] > 50, f"debug: {stopped}")
            need(f"pid {pid}" in found["text"] and "it is stopped" in found["text"], f"debug: {found['text']}")
            bench.rows.append(("stopped rank, stage %d" % stage, took))


def check_pause(bench):
    settings = [f"train.steps={STEPS}", f"run.timeout_s={bench.timeout_s}"]
    with bench.start(4, settings) as job:
        need(job.wait(120) == 0, f"the job left alone failed: {job.said()}")
        expected = numbers(job)
    with bench.start(4, settings) as job:
        job.wait_for_rows(5)
        pid = job.rank_pids()[2]
        need(job.signal(pid, signal.SIGSTOP), "rank 2 was gone")
        time.sleep(0.6 * bench.timeout_s)
        need(job.signal(pid, signal.SIGCONT), "rank 2 did not stay")
        code, said = job.wait(120), job.said()
        need(code == 0, f"exit code {code}: {said}")
        need("waited" not in said and not os.path.exists(f"{job.run_dir}/dumps"), f"something was tripped: {said}")
        need(numbers(job) == expected, "a pause has changed numbers")


def check_start(bench):
    """Rank 2 is stopped as soon as it is there: most likely before the ranks have met."""
    timeout_s = bench.timeout_s
    with bench.start(4, [f"run.start_timeout_s={timeout_s}", f"run.timeout_s={timeout_s}"]) as job:
        pid = job.wait_for_rank(2)
        began = time.monotonic()
        need(job.signal(pid, signal.SIGSTOP), "rank 2 was gone")
        took, said = need_over(bench, job, began, timeout_s + 1, 4)
        if "did not come to rendezvous" in said:
            need(re.search(r"did not come to rendezvous '[^']*': 2", said), f"rank 2 is not named: {said}")
        else:
            need("for rank 2 (" in said, f"rank 2 is not named: {said}")
        bench.rows.append(("stopped before the ranks met", took))


def check_hang(bench):
    """A rank that never comes back from reading its data, or from a matrix product: preloaded with hang.c."""
    for where, told in (("data", r"reading data for step \d+"), ("compute", r"in (FORWARD|BACKWARD) [a-z]+( \d)? of step \d+")):
        environment = {"LD_PRELOAD": bench.hang, "SHERD_TEST_HANG": f"{where}:2:{bench.folder}/hang-{where}"}
        with bench.start(4, [f"run.timeout_s={bench.timeout_s}"], environment=environment) as job:
            job.wait_for_rows(3)
            began = time.monotonic()
            open(f"{bench.folder}/hang-{where}", "w").close()
            took, said = need_over(bench, job, began, bench.timeout_s, 4)
            need("by KILL" not in said, f"{where}: rank 2 was given up, and waited for all the same: {said}")
            need(re.search(rf"rank [013] waited {bench.timeout_s} s in [^\n]* for rank 2 \([^\n]*: pid \d+ sleeps in a system call[^\n]*, {told}, since", said),
                 f"{where}: rank 2 and what it was doing are not told: {said}")
            found = bench.debug(job)
            need(found["verdict"] == "missing rank" and found["rank"] == 2 and re.search(told, found["text"]), f"{where}: debug: {found}")
            stack = found["ranks"][2]["stack"]  # empty in builds without libunwind
            need(not stack or any(("cblas_sgemm" if where == "compute" else "shd_feed_next") in frame for frame in stack), f"{where}: stack: {stack}")
            bench.rows.append((f"hangs in {where}", took))


PHASES = {
    "start": ([], lambda job: job.wait_for_rank(1)),
    "steps": ([], lambda job: job.wait_for_rows(5)),
    "evaluation": (["train.evaluate_every=1"], lambda job: job.wait_for_rows(3)),
    "save": (["checkpoint.every=1", "checkpoint.keep=1"], lambda job: job.wait_for_rows(3)),
}


def check_kill(bench):
    for phase, (settings, reach) in PHASES.items():
        with bench.start(4, settings) as job:
            reach(job)
            pid = job.wait_for_rank(1)
            began = time.monotonic()
            need(job.signal(pid, signal.SIGKILL), "rank 1 was gone")
            took, said = need_over(bench, job, began, 0, 4)
            need(re.search(rf"rank 1 of 4 \(pid {pid}\) was killed by signal 9", said), f"{phase}: rank 1 is not named: {said}")
            if phase != "start":
                need(re.search(r"rank 1 was \S+ ", said), f"{phase}: where rank 1 was is not told: {said}")
                found = bench.debug(job)
                need(found["rank"] == 1 and found["verdict"] in ("dead rank", "missing rank"), f"{phase}: debug: {found}")
            bench.rows.append((f"killed in {phase}", took))


def check_joined(bench):
    """Ranks of another launcher: they make the recorder when they meet, and say themselves where the dumps are."""
    run_dir = tempfile.mkdtemp(dir=bench.folder)
    command = [bench.sherd, "run", "-n", "4", "--max-restarts", "1", "--restart-delay", "0.1", bench.sherd, "train", bench.job,
               "--set", f"run.dir={run_dir}", "--set", f"run.timeout_s={bench.timeout_s}"]
    environment = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES}
    launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)

    def rank_2(attempt):
        for pid in read(f"/proc/{launcher.pid}/task/{launcher.pid}/children").split():
            variables = read(f"/proc/{int(pid)}/environ").split(b"\0")
            if b"RANK=2" in variables and f"TORCHELASTIC_RESTART_COUNT={attempt}".encode() in variables:
                return int(pid)
        return None

    def wait_for(condition, what):
        until = time.monotonic() + 60
        while not condition():
            need(launcher.poll() is None and time.monotonic() < until, f"without {what}")
            time.sleep(0.01)

    rows = f"{run_dir}/metrics.jsonl"
    try:
        for attempt in (0, 1):
            wait_for(lambda: rank_2(attempt), f"attempt {attempt}")
            began_ns = time.time_ns()
            wait_for(lambda: read(rows).count(b"\n") >= 4 and os.stat(rows).st_mtime_ns > began_ns, f"rows of attempt {attempt}")
            os.kill(rank_2(attempt), signal.SIGSTOP)
        said = launcher.communicate(timeout=bench.timeout_s + LIMIT_S + 5)[1]
    finally:
        launcher.kill()
        launcher.wait()
    need(launcher.returncode == 4, f"exit code {launcher.returncode}: {said}")
    for attempt in (0, 1):
        need(f"what every rank was doing is in {run_dir}/dumps/attempt_{attempt}" in said, f"nobody says where the dumps are: {said}")
        done = subprocess.run([bench.sherd, "debug", f"{run_dir}/dumps/attempt_{attempt}", "--json"], capture_output=True, text=True)
        need(done.returncode == 0, f"what was told of is gone: {done.stderr}; {said}")
        found = json.loads(done.stdout)
        need((found["verdict"], found["rank"], found["ranks"][2]["life"]) == ("missing rank", 2, "stopped"), f"debug: {found}; {said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd")
    parser.add_argument("--hang", help="hang.c, compiled; without it that check is left out")
    parser.add_argument("--only", help="one check by name")
    parser.add_argument("--timeout", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="print how long each took")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sherd-hang-") as folder:
        bench = Bench(arguments, folder)
        checks = {"stop": check_stop, "pause": check_pause, "start": check_start, "kill": check_kill, "joined": check_joined}
        if arguments.hang:
            checks["hang"] = check_hang
        failed = run_checks(checks, arguments.only, bench)
        if arguments.table:
            print("| what | until the job was over, s |\n| --- | --- |")
            for what, took in bench.rows:
                print(f"| {what} | {took:.1f} |")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
