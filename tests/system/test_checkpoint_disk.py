#!/usr/bin/env python3
"""Disks that fill up and folders that vanish while a job saves: older checkpoints stay whole, the job says what happened
and does as checkpoint.on_error says, and its exit code is never 0.

usage: test_checkpoint_disk.py SHERD [--times N] [--calls N] [--fail-io PATH] [--only NAME] [--table]

Small disks are tmpfs in a mount namespace of the test's own, and rights are those of a user without any; where the test
may not mount or change its user, these checks are skipped with a note.  --times repeats all with other layouts and moments.
failing-calls: system calls on files of checkpoints that fail once or from then on, with EIO, EDQUOT or EROFS: each of them in turn when
--calls is 1, every N-th otherwise.  bad-sector: reads that fail.  Both need fail_io.c, compiled, at --fail-io.
"""
import argparse
import errno
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from checkpoints import LIMIT_S, complete, failing, need_whole, others, path_of, weights
from jobs import DISK, Failure, Job, need, write_files

INSIDE = "--inside-namespace"
NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
PAUSE_S = 10  # until a save or a failure of one is seen
STEPS = 12
SETTINGS = ["train.global_batch=12", "checkpoint.every=2", "checkpoint.keep=0"]


class Skipped(Exception):
    pass


class Bench:
    def __init__(self, arguments, folder):
        self.folder, self.random = folder, random.Random(arguments.seed)
        os.chmod(folder, 0o755)
        self.sherd = shutil.copy(arguments.sherd, folder)  # where anybody can run it
        self.job = write_files(folder)
        self.calls, self.fail_io = arguments.calls, arguments.fail_io
        self.counts = {}
        with self.start([f"train.steps={STEPS}", "checkpoint.every=0"], ranks=2) as job:
            need(job.wait(LIMIT_S) == 0, f"a plain job failed: {job.said()}")
            path = path_of(f"{job.run_dir}/checkpoints", STEPS)
            self.save_bytes = sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path))
            self.file_bytes = max(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path))

    def start(self, settings, ranks=None, **more):
        return Job(self.sherd, self.job, ranks or self.random.choice((1, 2, 3)),
                   [*SETTINGS, f"shard.stage={self.random.choice((0, 3))}", f"checkpoint.async={self.random.choice(('true', 'false'))}",
                    *settings], **more)

    def new_folder(self, owner=None):
        folder = tempfile.mkdtemp(dir=self.folder)
        if owner is not None:
            os.chown(folder, owner, owner)
        return folder


class SmallDisk:
    """A tmpfs of some bytes, in this process' own mount namespace."""

    def __init__(self, bench, size, options=""):
        self.path = bench.new_folder()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={-(-size // 4096) * 4096}{options}", "none", self.path], capture_output=True)
        if done.returncode:
            raise Skipped(f"cannot mount a tmpfs: {done.stderr.decode().strip()}")

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.path], check=True)


def need_failed(bench, job, folder, cause, code=1, at_least=0):
    """The job ended with the code and said the cause and the folder; what is complete is whole, and nothing else is there."""
    got, said = job.wait(LIMIT_S), job.said()
    need(got == code, f"exit code {got}: {said}")
    need(re.search(cause, said), f"does not say {cause}: {said}")
    need(folder in said, f"does not name {folder}: {said}")
    job.need_nothing_left(time.monotonic() + 5)
    steps = complete(folder)
    need(len(steps) >= at_least, f"only {steps} are complete: {said}")
    for step in steps:
        need_whole(bench.sherd, path_of(folder, step))
    left = [name for name in (others(folder) if os.path.isdir(folder) else []) if name != ".sherd-lock"]
    need(not left, f"left behind: {left}: {said}")
    return said


def rows(job):
    return job.rows().count("\n")


def check_full_disk(bench):
    """Room for two checkpoints and no third one."""
    for on_error, steps in (("stop", 10), ("fail", 6), ("continue", STEPS)):
        with SmallDisk(bench, int(2.5 * bench.save_bytes) + 65536) as disk:
            with bench.start([f"train.steps={STEPS}", f"checkpoint.dir={disk}", f"checkpoint.on_error={on_error}"], ranks=2) as job:
                need_failed(bench, job, disk, "No space left on device", at_least=2)
                # An asynchronous save is known to have failed a step or two later than it began.
                need(steps <= rows(job) <= min(steps + 3, STEPS), f"on_error: {on_error}, but {rows(job)} steps were made: {job.said()}")
    bench.counts["a full disk"] = 3


def check_no_inodes(bench):
    with SmallDisk(bench, 64 << 20, ",nr_inodes=9") as disk:
        with bench.start([f"train.steps={STEPS}", f"checkpoint.dir={disk}"], ranks=2) as job:
            need_failed(bench, job, disk, "No space left on device", at_least=1)
    bench.counts["no more inodes"] = 1


def check_full_for_a_while(bench):
    """A disk that has room again: later saves succeed, but the job has lost some and says so at the end."""
    with SmallDisk(bench, int(3.5 * bench.save_bytes) + 65536) as disk:
        ballast = os.path.join(disk, "ballast")
        with open(ballast, "wb") as file:
            file.write(bytes(2 * bench.save_bytes))
        settings = ["train.steps=1000000", "checkpoint.every=4", "checkpoint.keep=1", f"checkpoint.dir={disk}", "checkpoint.on_error=continue"]
        with bench.start(settings, ranks=2) as job:
            job.wait_for(lambda: "No space left on device" in job.said(), "a save has failed", PAUSE_S)
            os.unlink(ballast)
            newest = complete(disk)[-1:]
            job.wait_for(lambda: complete(disk)[-1:] > newest, "a save has succeeded again", PAUSE_S)
            job.launcher.terminate()
            code, said = job.wait(LIMIT_S), job.said()
            need(code in (1, 143), f"exit code {code}: {said}")
            need(len(complete(disk)) == 1, f"keep: 1, but {complete(disk)}: {said}")
            need_whole(bench.sherd, path_of(disk, complete(disk)[0]))
    bench.counts["a disk that was full for a while"] = 1


def check_file_limit(bench):
    """ulimit -f: a rank's file may not be so long, which is known before the job starts, if it was so then. Nobody is killed by
    SIGXFSZ. On one rank: shared memory is limited, too."""
    folder = bench.new_folder()
    with bench.start([f"train.steps={STEPS}", f"checkpoint.dir={folder}"], ranks=1, file_bytes=bench.file_bytes // 2) as job:
        code, said = job.wait(LIMIT_S), job.said()
        need(code == 1 and re.search(r"a file may have \d+ bytes.*raise the limit", said), f"from the start: exit code {code}: {said}")
    for on_error in ("stop", "fail", "continue"):
        folder = bench.new_folder()
        with bench.start([f"train.steps={STEPS}", f"checkpoint.dir={folder}", f"checkpoint.on_error={on_error}"], ranks=1) as job:
            job.wait_for_rows(1)
            resource.prlimit(job.launcher.pid, resource.RLIMIT_FSIZE, (bench.file_bytes // 2, bench.file_bytes // 2))
            need_failed(bench, job, folder, "File too large")
    bench.counts["ulimit -f"] = 4


def need_root():
    if os.getuid() != 0 or not shutil.which("setpriv"):
        raise Skipped("only root can become a user without rights")


def check_read_only(bench):
    """A folder that the job may not write into, from the start or from some step on."""
    need_root()
    run_dir, folder = bench.new_folder(NOBODY), bench.new_folder(NOBODY)
    os.chmod(folder, 0o555)
    with bench.start([f"train.steps={STEPS}", f"checkpoint.dir={folder}"], run_dir=run_dir, prefix=AS_NOBODY) as job:
        code, said = job.wait(LIMIT_S), job.said()
        need(code in (1, 3) and "Permission denied" in said and folder in said, f"read-only from the start: exit code {code}: {said}")
        need(not job.rows(), f"trained for a folder that it may not write into: {said}")
    run_dir, folder = bench.new_folder(NOBODY), bench.new_folder(NOBODY)
    with bench.start(["train.steps=1000000", f"checkpoint.dir={folder}"], run_dir=run_dir, prefix=AS_NOBODY) as job:
        job.wait_for(lambda: complete(folder), "a checkpoint", PAUSE_S)
        os.chmod(folder, 0o555)
        got, said = job.wait(LIMIT_S), job.said()
        os.chmod(folder, 0o755)
        need(got == 1 and "Permission denied" in said and folder in said, f"exit code {got}: {said}")
        need(complete(folder), f"lost its checkpoints: {said}")
        for step in complete(folder):
            need_whole(bench.sherd, path_of(folder, step))
    bench.counts["no rights"] = 2


def check_quota(bench):
    need_root()
    with SmallDisk(bench, 64 << 20, f",usrquota,usrquota_block_hardlimit={int(2.5 * bench.save_bytes)}") as disk:
        os.chown(disk, NOBODY, NOBODY)
        with bench.start([f"train.steps={STEPS}", f"checkpoint.dir={disk}"], ranks=2, run_dir=bench.new_folder(NOBODY), prefix=AS_NOBODY) as job:
            need_failed(bench, job, disk, "Disk quota exceeded", at_least=1)
    bench.counts["a quota"] = 1


def vanish(what, parent, folder):
    """Takes away what is there of a save that is under way, if one is."""
    partial = [name for name in os.listdir(folder) if ".partial" in name] if os.path.isdir(folder) else []
    if not partial:
        return
    if "in the making" in what:
        path = os.path.join(folder, partial[0])
        shutil.rmtree(path, ignore_errors=True)
    else:
        path = folder
        os.rename(folder, os.path.join(parent, f"saved-{len(os.listdir(parent))}"))
    if "a file" in what:
        try:
            open(path, "x").close()
        except OSError:
            pass  # the job was faster


def check_vanished(bench):
    """The folder of checkpoints, or the one in the making, is removed or replaced by a file in the middle of saves."""
    for what in ("the folder of checkpoints", "the one in the making", "a file instead of the folder", "a file instead of the one in the making"):
        parent = bench.new_folder()
        folder = os.path.join(parent, "checkpoints")
        with bench.start(["train.steps=1000000", "checkpoint.every=1", "checkpoint.keep=3", f"checkpoint.dir={folder}", "checkpoint.on_error=fail"]) as job:
            job.wait_for(lambda: os.path.isdir(folder) and complete(folder), "a checkpoint", PAUSE_S)
            deadline = time.monotonic() + PAUSE_S
            while job.launcher.poll() is None and time.monotonic() < deadline:
                vanish(what, parent, folder)
                time.sleep(bench.random.uniform(0, 0.005))
            code, said = job.wait(LIMIT_S), job.said()
            need(code == 1, f"{what}: exit code {code}: {said}")
            need(folder in said, f"{what}: does not name {folder}: {said}")
            job.need_nothing_left(time.monotonic() + 5)
        folders = [os.path.join(parent, name) for name in os.listdir(parent) if os.path.isdir(os.path.join(parent, name))]
        found = [path_of(where, step) for where in folders for step in complete(where)]
        need(found, f"{what}: all checkpoints are lost: {said}")
        for path in found:
            need_whole(bench.sherd, path)
        bench.counts[what] = bench.counts.get(what, 0) + 1


def check_replaced(bench):
    """The folder of checkpoints is moved away between saves: the next one makes another, and that is said."""
    parent = bench.new_folder()
    folder = os.path.join(parent, "checkpoints")
    with bench.start(["train.steps=1000000", "checkpoint.every=5", f"checkpoint.dir={folder}", "checkpoint.on_error=continue"]) as job:
        job.wait_for(lambda: os.path.isdir(folder) and complete(folder), "a checkpoint", PAUSE_S)
        os.rename(folder, folder + "-moved")
        job.wait_for(lambda: os.path.isdir(folder) and complete(folder), "a checkpoint in the other folder", PAUSE_S)
        job.launcher.terminate()
        need(job.wait(LIMIT_S) == 143, f"not stopped: {job.said()}")
        said = job.said()
    need(said.count(f"{folder} is another folder than it was") == 1, f"does not say once that it is another folder: {said}")
    for where in (folder, folder + "-moved"):
        for step in complete(where):
            need_whole(bench.sherd, path_of(where, step))
    bench.counts["the folder moved away between saves"] = 1


def check_file_at_start(bench):
    folder = os.path.join(bench.new_folder(), "checkpoints")
    open(folder, "x").close()
    with bench.start([f"train.steps={STEPS}", f"checkpoint.dir={folder}"]) as job:
        code, said = job.wait(LIMIT_S), job.said()
        need(code not in (0, None) and code > 0 and folder in said and not job.rows(), f"a file in its place: exit code {code}: {said}")
    bench.counts["a file in place of the folder, at the start"] = 1


def check_failing_calls(bench):
    """One call after another fails, until a job ends without having met its failure."""
    if not bench.fail_io:
        raise Skipped("without --fail-io")
    small = ["model.n_layer=1", "train.steps=4", "checkpoint.every=1", "checkpoint.keep=2", "checkpoint.on_error=continue"]
    for ranks, rank in ((2, 0), (2, 1), (1, 0)):
        call = bench.random.randint(1, bench.calls)
        while True:
            error, ever = bench.random.choice((errno.EIO, errno.EDQUOT, errno.EROFS)), bench.random.choice(("", "+"))
            folder = bench.new_folder()
            where = f"rank {rank} of {ranks}, {errno.errorcode[error]} {'from' if ever else 'of'} call {call} on"
            with bench.start([*small, f"checkpoint.dir={folder}"], ranks=ranks, environment=failing(bench.fail_io, f"{error}{ever}", call, rank, folder)) as job:
                code, said = job.wait(LIMIT_S), job.said()
                job.need_nothing_left(time.monotonic() + 5)
            told = os.strerror(error) in said
            if not told and code == 0:
                need(complete(folder) == [3, 4], f"{where}: nothing is said, but complete are {complete(folder)}: {said}")
                need(not [name for name in others(folder) if name != ".sherd-lock"], f"{where}: nothing is said, but left are {others(folder)}")
                break
            need(told, f"{where}: exit code {code}, but the cause is not said: {said}")
            need(code in (1, 3) or complete(folder)[-1:] == [4], f"{where}: exit code {code}, complete are {complete(folder)}: {said}")
            for step in complete(folder):
                need_whole(bench.sherd, path_of(folder, step))
            if not ever and code == 1:
                left = [name for name in others(folder) if name != ".sherd-lock"]
                need(not left or "left" in said or "remove" in said, f"{where}: not a word of what is left, {left}: {said}")
            with bench.start([*small, f"checkpoint.dir={folder}", "train.steps=5"]) as again:
                code, said = again.wait(LIMIT_S), again.said()
                need(code == 0 and complete(folder)[-1:] == [5] and len(complete(folder)) <= 2, f"{where}; without it: exit code {code}, {complete(folder)}: {said}")
                left = [name for name in others(folder) if name != ".sherd-lock"]
                need(not left, f"{where}; without it left behind: {left}: {said}")
            bench.counts["a failing call"] = bench.counts.get("a failing call", 0) + 1
            call += bench.calls


def check_poor_disk(bench):
    """A file system that can little: no O_DIRECT, no locks, no exchange of names, short and interrupted reads and writes."""
    if not bench.fail_io:
        raise Skipped("without --fail-io")
    folder, run_dir, plain = bench.new_folder(), bench.new_folder(), bench.new_folder()
    keys = ["checkpoint.every=3", "checkpoint.keep=2", "optimizer.schedule=constant"]
    with bench.start([f"train.steps={STEPS}", *keys, f"checkpoint.dir={plain}"]) as job:
        need(job.wait(LIMIT_S) == 0, f"a plain job failed: {job.said()}")
    for steps in (STEPS // 2, STEPS):
        with bench.start([f"train.steps={steps}", *keys, f"checkpoint.dir={folder}"], run_dir=run_dir,
                         environment=failing(bench.fail_io, "poor", 0, "*", folder)) as job:
            code, said = job.wait(LIMIT_S), job.said()
            need(code == 0 and complete(folder)[-1:] == [steps] and len(complete(folder)) == 2, f"exit code {code}, {complete(folder)}: {said}")
    need(weights(bench.sherd, path_of(folder, STEPS)) == weights(bench.sherd, path_of(plain, STEPS)), "other weights")
    bench.counts["a poor file system"] = 2


def check_bad_sector(bench):
    """A checkpoint that a rank cannot read is neither passed over nor harmed, and the job says what a person may do."""
    if not bench.fail_io:
        raise Skipped("without --fail-io")
    run_dir, folder = bench.new_folder(), bench.new_folder()
    keys = ["checkpoint.every=2", "optimizer.schedule=constant", f"checkpoint.dir={folder}"]
    with bench.start(["train.steps=4", *keys], run_dir=run_dir) as job:
        need(job.wait(LIMIT_S) == 0, f"a plain job failed: {job.said()}")
    with bench.start(["train.steps=6", *keys], ranks=2, run_dir=run_dir, environment=failing(bench.fail_io, "bad", 0, 1, path_of(folder, 4))) as job:
        code, said = job.wait(LIMIT_S), job.said()
        need(code == 1 and os.strerror(errno.EIO) in said, f"exit code {code}: {said}")
        need("checkpoint.resume: PATH goes on from an older one" in said, f"not a word of what to do: {said}")
        need(complete(folder) == [2, 4], f"complete are {complete(folder)}: {said}")
    for step in (2, 4):
        need_whole(bench.sherd, path_of(folder, step))
    with bench.start(["train.steps=6", *keys, f"checkpoint.resume={path_of(folder, 2)}"], run_dir=run_dir) as job:
        code, said = job.wait(LIMIT_S), job.said()
        need(code == 0 and complete(folder)[-1:] == [6], f"exit code {code}, {complete(folder)}: {said}")
    bench.counts["a bad sector"] = 1


CHECKS = {"poor-disk": check_poor_disk, "failing-calls": check_failing_calls, "full-disk": check_full_disk, "no-inodes": check_no_inodes, "full-for-a-while": check_full_for_a_while, "file-limit": check_file_limit,
          "read-only": check_read_only, "quota": check_quota, "vanished": check_vanished, "replaced": check_replaced, "bad-sector": check_bad_sector, "file-at-start": check_file_at_start}


def check_all(arguments):
    failed = 0
    with tempfile.TemporaryDirectory(prefix="sherd-disk-", dir=DISK) as folder:
        bench = Bench(arguments, folder)
        for name, check in CHECKS.items():
            if arguments.only not in (None, name):
                continue
            began = time.monotonic()
            try:
                for _ in range(arguments.times):
                    check(bench)
                print(f"{name}: held, {time.monotonic() - began:.1f} s", flush=True)
            except Skipped as reason:
                print(f"{name}: skipped: {reason}", flush=True)
            except Failure as failure:
                failed += 1
                print(f"{name}: FAILED: {failure}", flush=True)
        if arguments.table:
            print("| what | jobs each time |\n| --- | --- |")
            for what, count in bench.counts.items():
                print(f"| {what} | {count} |")
    return failed > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--calls", type=int, default=29, help="every which system call fails")
    parser.add_argument("--fail-io", type=os.path.abspath, help="fail_io.c as a shared object")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=CHECKS, help="one check")
    parser.add_argument("--table", action="store_true", help="print what was done")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside_namespace:
        own = ["unshare", "--mount", "--propagation", "private", "--"]
        if shutil.which("unshare") and subprocess.run([*own, "true"], capture_output=True).returncode == 0:
            sys.stdout.flush()
            os.execvp(own[0], [*own, sys.executable, *sys.argv, INSIDE])
    return check_all(arguments)


if __name__ == "__main__":
    sys.exit(main())
