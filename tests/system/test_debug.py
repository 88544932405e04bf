#!/usr/bin/env python3
"""Dumps of a job that runs, by `sherd debug --of`.

usage: test_debug.py SHERD [--hang PATH] [--only NAME]

slow: a rank that computes slowly is named, while the job goes on; needs hang.c, compiled, at --hang.

stopped: so is one that is stopped, long before run.timeout_s; it goes on afterwards, and no number is another one.

refused: what is no job, and a folder that is there.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from jobs import Job, need, run_checks, write_files

AFTERWARDS = 50  # steps of a rank that was stopped


class Bench:
    def __init__(self, arguments, folder):
        self.sherd = os.path.abspath(arguments.sherd)
        self.hang = arguments.hang
        self.folder = folder
        self.job = write_files(folder)

    def debug(self, pid, name):
        return subprocess.run([self.sherd, "debug", "--of", str(pid), f"{self.folder}/{name}", "--json"], capture_output=True, text=True)

    def take(self, pid, name):
        done = self.debug(pid, name)
        need(done.returncode == 0, f"sherd debug: exit code {done.returncode}: {done.stderr}")
        found = json.loads(done.stdout)
        need(found["dumps"] == found["world_size"] == 4 and found["alarm"] is None, f"debug: {found}")
        need(all(rank["written_by"] == "sherd debug" for rank in found["ranks"]), f"debug: {found}")
        return found


def numbers(job):
    whole = job.rows().rpartition("\n")[0]
    return [(row["step"], row["loss"], row["grad_norm"]) for row in map(json.loads, whole.splitlines())]


def check_slow(bench):
    slow = f"{bench.folder}/slow"
    environment = {"LD_PRELOAD": bench.hang, "SHERD_TEST_HANG": f"slow:1:{slow}"}
    with Job(bench.sherd, bench.job, 4, environment=environment) as job:
        job.wait_for_rows(3)
        open(slow, "w").close()
        job.wait_for_rows(len(job.rows().splitlines()) + 22)  # slow ones, whole
        found = bench.take(job.launcher.pid, "slow-dumps")
        need((found["verdict"], found["rank"]) == ("straggler", 1), f"debug: {found['text']}")
        need("rank 1 (pid" in found["text"] and "is slow: its own work took" in found["text"], found["text"])
        rows = len(job.rows().splitlines())
        job.wait_for_rows(rows + 3)
        need(not os.path.exists(f"{job.run_dir}/dumps"), "something was tripped")


def check_stopped(bench):
    with Job(bench.sherd, bench.job, 4) as job:
        job.wait_for_rows(5)
        pid = job.rank_pids()[2]
        need(job.signal(pid, signal.SIGSTOP), "rank 2 was gone")
        time.sleep(0.3)
        found = bench.take(job.launcher.pid, "stopped-dumps")
        need((found["verdict"], found["rank"]) == ("missing rank", 2) and "it is stopped" in found["text"], f"debug: {found}")
        need(job.signal(pid, signal.SIGCONT), "rank 2 did not stay")
        job.wait_for_rows(len(job.rows().splitlines()) + AFTERWARDS)
        seen = numbers(job)
    with Job(bench.sherd, bench.job, 4, [f"train.steps={len(seen)}"]) as job:
        need(job.wait(120) == 0, f"the job left alone failed: {job.said()}")
        need(numbers(job) == seen, "looking has changed numbers")


def check_refused(bench):
    for pid, name, words in ((os.getpid(), "none", "holds no flight recorder"), (2 ** 30, "none", "there is no process"), (os.getpid(), ".", "is there already"),
                             ("0", "none", "the number of a process is needed")):
        done = bench.debug(pid, name)
        need(done.returncode == 2 and words in done.stderr, f"{pid} {name}: exit code {done.returncode}: {done.stderr}")
        need(name == "." or not os.path.exists(f"{bench.folder}/{name}"), "something is left")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd")
    parser.add_argument("--hang", help="hang.c, compiled; without it that check is left out")
    parser.add_argument("--only", help="one check by name")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sherd-debug-") as folder:
        checks = {"stopped": check_stopped, "refused": check_refused}
        if arguments.hang:
            checks["slow"] = check_slow
        return run_checks(checks, arguments.only, Bench(arguments, folder)) > 0


if __name__ == "__main__":
    sys.exit(main())
