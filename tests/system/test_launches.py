#!/usr/bin/env python3
"""Many launches: one after the other, again and again by one launcher, and at the same moment.

usage: test_launches.py SHERD --first PATH [--times N] [--restarts N] [--jobs N] [--only NAME]

launches: `sherd run -n 4` of first.c, --times times.  None may fail, nothing may be left: no process, no socket, no file
in /dev/shm or TMPDIR; ranks have no descriptors but those that a child of this test has.  Says how long it takes from the start
to the first instruction of the last rank's program, beside fork and exec of /bin/true, measured in turn.

restarts: one launcher starts its ranks --restarts times again.  It has no more descriptors then than at first.

together: --jobs of `sherd run` and as many of `sherd train -n 2` that start at once: all run, with ports of their own and
the same numbers.

The defaults take seconds; `--times 1000 --restarts 200 --jobs 20` is for a run by hand.
"""
import argparse
import collections
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from jobs import DISK, LAUNCHER_VARIABLES, MARK, Job, is_alive, need, processes, read, run_checks, write_files

RANKS = 4
LIMIT_S = 60
INSIDE = "--inside-namespace"

Line = collections.namedtuple("Line", "rank ns port restarts descriptors launchers")


class Bench:
    def __init__(self, arguments, folder):
        self.sherd, self.first = os.path.abspath(arguments.sherd), os.path.abspath(arguments.first)
        self.times, self.restarts, self.jobs = arguments.times, arguments.restarts, arguments.jobs
        self.folder, self.temporary = folder, os.path.join(folder, "tmp")
        self.own_shared_memory = arguments.inside_namespace
        os.mkdir(self.temporary)
        self.mark = os.path.basename(folder)
        self.environment = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES and not k.startswith(("SHERD_", "TORCHELASTIC_"))}
        self.environment |= {MARK: self.mark, "TMPDIR": self.temporary}

        self.descriptors = self.spawn(self.first)[3][0].descriptors  # what whoever started us has left open, and the usual three

    def run(self, *arguments):
        return self.spawn(self.sherd, "run", *arguments)

    def spawn(self, *command):
        """Milliseconds from the start to the last rank's first instruction and to the end, the exit code, and what ranks said."""
        out, into = os.pipe()
        with open(f"{self.folder}/errors", "w") as errors:
            actions = [(os.POSIX_SPAWN_DUP2, into, 1), (os.POSIX_SPAWN_DUP2, errors.fileno(), 2)]
            began = time.monotonic_ns()
            pid = os.posix_spawn(command[0], command, self.environment, file_actions=actions)
            os.close(into)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            ended = time.monotonic_ns()
        with open(out) as file:  # its end comes when nobody has the other end any more
            lines = [Line(*(int(word) if word != "-" else -1 for word in line.split())) for line in file.read().splitlines()]
        last = max((line.ns for line in lines), default=began)
        return (last - began) / 1e6, (ended - began) / 1e6, code, lines

    def errors(self):
        return read(f"{self.folder}/errors").decode()

    def leftovers(self, ports):
        left = [f"process {pid} ({read(f'/proc/{pid}/comm').decode().strip()})" for pid in processes()
                if is_alive(pid) and f"{MARK}={self.mark}".encode() in read(f"/proc/{pid}/environ").split(b"\0")]
        sockets = read("/proc/net/unix").decode(errors="replace")
        left += [f"socket {name}" for port in ports for name in re.findall(rf"@sherd-\S*\b{port}\b\S*", sockets)]
        left += [f"{self.temporary}/{name}" for name in os.listdir(self.temporary)]
        if self.own_shared_memory:
            left += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm")]
        return left

    def need_nothing_left(self, ports):
        until = time.monotonic() + 5
        while left := self.leftovers(ports):
            need(time.monotonic() < until, f"left behind: {', '.join(left)}")
            time.sleep(0.01)


def true_ms(count):
    """`count` times fork, exec, and the end of /bin/true, side by side."""
    program = shutil.which("true")
    began = time.monotonic_ns()
    pids = [os.posix_spawn(program, ["true"], {}) for _ in range(count)]
    for pid in pids:
        os.waitpid(pid, 0)
    return (time.monotonic_ns() - began) / 1e6


def spread(values):
    """Median, 95 % and the longest."""
    values = sorted(values)
    return f"{statistics.median(values):.2f} ms (95 %: {values[int(0.95 * (len(values) - 1))]:.2f}, longest {values[-1]:.2f})"


def check_launches(bench):
    starts, ends, one, four = [], [], [], []
    ports = set()
    before = len(os.listdir("/proc/self/fd"))
    for i in range(bench.times):
        start_ms, end_ms, code, lines = bench.run("-n", str(RANKS), bench.first)
        need(code == 0, f"launch {i}: exit code {code}: {bench.errors()}")
        need(sorted(line.rank for line in lines) == list(range(RANKS)), f"launch {i}: ranks {lines}")
        need(all(line.descriptors == bench.descriptors for line in lines), f"launch {i}: ranks have descriptors that are not theirs: {lines}")
        need(len({line.port for line in lines}) == 1, f"launch {i}: ranks were told different ports: {lines}")
        ports.add(lines[0].port)
        starts.append(start_ms)
        ends.append(end_ms)
        one.append(true_ms(1))
        four.append(true_ms(RANKS))
        if i % 100 == 99:
            bench.need_nothing_left(ports)
    bench.need_nothing_left(ports)
    need(len(os.listdir("/proc/self/fd")) == before, "this test itself leaks")
    print(f"  {bench.times} launches of {RANKS} ranks: to the first instruction of the last one {spread(starts)}\n"
          f"    until all was over {spread(ends)}\n    /bin/true: {spread(one)}; {RANKS} of them side by side {spread(four)}", flush=True)


def check_restarts(bench):
    _, end_ms, code, lines = bench.run("-n", str(RANKS), "--max-restarts", str(bench.restarts), "--restart-delay", "0", bench.first, "5")
    need(code == 5, f"exit code {code}: {bench.errors()}")
    attempts = collections.defaultdict(list)
    for line in lines:
        attempts[line.restarts].append(line)
    # A rank may be ended, because another one has failed, before it can say anything.
    need(sorted(attempts) == list(range(bench.restarts + 1)), f"attempts {sorted(attempts)}")
    first, last = (max(line.launchers for line in attempts[i]) for i in (0, bench.restarts))
    # Ranks look while others are still being started, each of which is a few descriptors; one lost a restart would be more.
    need(last <= first + 2 * RANKS, f"the launcher had {first} descriptors at first, {last} at last")
    need(all(line.descriptors == bench.descriptors for line in lines), "ranks have descriptors that are not theirs")
    bench.need_nothing_left({line.port for line in lines})
    print(f"  {bench.restarts} restarts in {end_ms:.0f} ms; the launcher had {first} descriptors at first, {last} at last", flush=True)


def check_together(bench):
    began = time.monotonic()
    script = "echo $MASTER_PORT >$0/$RANK; until [ -e $0/go ]; do sleep 0.05; done"
    folders = [tempfile.mkdtemp(dir=bench.folder) for _ in range(bench.jobs)]
    runs = [subprocess.Popen([bench.sherd, "run", "-n", "2", "sh", "-c", script, folder], env=bench.environment, stdin=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True) for folder in folders]
    job_folder = tempfile.mkdtemp(dir=bench.folder)
    job = write_files(job_folder)
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(Job(bench.sherd, job, 2, ["train.steps=5"], environment={"TMPDIR": bench.temporary})) for _ in range(bench.jobs)]
        try:
            until = time.monotonic() + LIMIT_S
            while not all(read(f"{folder}/{rank}").endswith(b"\n") for folder in folders for rank in (0, 1)):
                need(time.monotonic() < until, "not all of `sherd run` came to run at the same time")
                time.sleep(0.01)
            ports = {read(f"{folder}/{rank}") for folder in folders for rank in (0, 1)}
            need(len(ports) == bench.jobs, f"{len(ports)} ports of {bench.jobs} jobs")
            told = set()
            for one in jobs:
                code = one.wait(LIMIT_S)
                need(code == 0, f"train: exit code {code}: {one.said()}")
                told.add(tuple((row["loss"], row["grad_norm"]) for row in map(json.loads, one.rows().splitlines())))
                one.need_nothing_left(time.monotonic() + 5)
            need(len(told) == 1 and len(next(iter(told))) == 5, f"jobs that are the same have different numbers: {told}")
        finally:
            for folder in folders:
                with open(f"{folder}/go", "w"):
                    pass
            said = [(one.communicate(timeout=LIMIT_S)[1], one.returncode) for one in runs]
    need(all(code == 0 for _, code in said), f"run: {[one for one in said if one[1]]}")
    bench.need_nothing_left({int(port) for port in ports})
    print(f"  {bench.jobs} of `run` and {bench.jobs} of `train -n 2` at once: {time.monotonic() - began:.1f} s", flush=True)


CHECKS = {"launches": check_launches, "restarts": check_restarts, "together": check_together}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd")
    parser.add_argument("--first", required=True, help="first.c, compiled")
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--only", choices=CHECKS, help="one check")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    # With a /dev/shm of our own nothing there is anybody else's.
    own = ["unshare", "--mount", "--propagation", "private", "--"]
    if not arguments.inside_namespace and shutil.which("unshare") and \
            subprocess.run([*own, "mount", "-t", "tmpfs", "none", "/dev/shm"], capture_output=True).returncode == 0:
        sys.stdout.flush()
        os.execvp(own[0], [*own, "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh", sys.executable, *sys.argv, INSIDE])
    with tempfile.TemporaryDirectory(prefix="sherd-launches-", dir=DISK) as folder:
        return run_checks(CHECKS, arguments.only, Bench(arguments, folder)) > 0


if __name__ == "__main__":
    sys.exit(main())
