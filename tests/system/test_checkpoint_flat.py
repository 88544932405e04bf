#!/usr/bin/env python3
"""Many saves in one job: resident memory, threads and descriptors of the launcher and of every rank stay what they were.

usage: test_checkpoint_flat.py SHERD [--times N] [--table]

Jobs on 2 ranks save after every step, --times saves each, at stages 0 and 3, asynchronously and not, keeping two.  From the
warm-up on (a quarter of the saves) there are as many threads at every look, no more descriptors in the second half of the looks than in
the first, and resident memory has at the end grown by no more than GROWTH_BYTES.  The default takes seconds; --times 300 is for a run by hand.
"""
import argparse
import os
import re
import sys
import tempfile
import time

from checkpoints import complete
from jobs import DISK, Failure, Job, need, read, write_files

GROWTH_BYTES = 256 << 10
LIMIT_S = 120
RANKS = 2


def look(pid):
    """(resident bytes, threads, descriptors) of a process; None when it is over."""
    status = read(f"/proc/{pid}/status").decode()
    resident, threads = re.search(r"VmRSS:\s*(\d+) kB", status), re.search(r"Threads:\s*(\d+)", status)
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except FileNotFoundError:
        return None
    return (int(resident[1]) << 10, int(threads[1]), len(descriptors)) if resident else None


def check(sherd, job_path, stage, asynchronous, times):
    """Returns the looks, by process: a list of (newest checkpoint, look)."""
    settings = [f"shard.stage={stage}", "train.steps=1000000", "checkpoint.every=1", "checkpoint.keep=2", f"checkpoint.async={asynchronous}"]
    with Job(sherd, job_path, RANKS, settings) as job:
        folder, looks, newest = os.path.join(job.run_dir, "checkpoints"), {}, 0
        job.wait_for_rows(2)
        pids = {**{f"rank {rank}": pid for rank, pid in job.rank_pids().items()}, "launcher": job.launcher.pid}
        need(len(pids) == RANKS + 1, f"not {RANKS} ranks: {pids}")
        deadline = time.monotonic() + LIMIT_S
        while newest < times:
            need(job.launcher.poll() is None, f"the job ended: {job.said()}")
            need(time.monotonic() < deadline, f"only {newest} saves in {LIMIT_S} s: {job.said()}")
            found = complete(folder)[-1:]
            if found and found[0] > newest:
                newest = found[0]
                for who, pid in pids.items():
                    if seen := look(pid):
                        looks.setdefault(who, []).append((newest, seen))
            time.sleep(0.001)
        job.launcher.terminate()
        code = job.wait(LIMIT_S)
        need(code == 143, f"exit code {code}: {job.said()}")
    return looks


def settled(looks, times):
    return [seen for newest, seen in looks if newest >= times // 4]


def need_flat(looks, times):
    for who, all_looks in looks.items():
        seen = settled(all_looks, times)
        need(len(seen) > 3, f"{who}: looked at only {len(seen)} times")
        half = len(seen) // 2
        first, last = seen[:half], seen[half:]
        need(len({s[1] for s in seen}) == 1, f"{who}: threads come and go: {[s[1] for s in seen]}")
        # What is being written or listed is open for a moment; what is not closed would become ever more.
        need(max(s[2] for s in last) <= max(s[2] for s in first) + 1, f"{who}: ever more descriptors: {[s[2] for s in seen]}")
        grown = seen[-1][0] - seen[0][0]
        need(grown <= GROWTH_BYTES, f"{who}: resident memory has grown by {grown} bytes: {[s[0] for s in seen]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd", type=os.path.abspath)
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--table", action="store_true", help="print what was seen")
    arguments = parser.parse_args()
    failed = 0
    if arguments.table:
        print("| stage | async | process | saves | resident KiB, first and last | threads | descriptors |\n| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="sherd-flat-", dir=DISK) as folder:
        job = write_files(folder)
        for stage, asynchronous in ((3, "true"), (0, "true"), (3, "false")):
            try:
                looks = check(arguments.sherd, job, stage, asynchronous, arguments.times)
                if arguments.table:
                    for who, all_looks in looks.items():
                        seen = settled(all_looks, arguments.times)
                        ranges = [f"{min(s[i] for s in seen)} to {max(s[i] for s in seen)}" for i in (1, 2)]
                        print(f"| {stage} | {asynchronous} | {who} | {arguments.times} | {seen[0][0] >> 10} {seen[-1][0] >> 10} | {' | '.join(ranges)} |")
                need_flat(looks, arguments.times)
                print(f"stage {stage}, async {asynchronous}: held", flush=True)
            except Failure as failure:
                failed += 1
                print(f"stage {stage}, async {asynchronous}: FAILED: {failure}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
