#!/usr/bin/env python3
"""`sherd run` and its restarts as a user sees them: ranks of shell scripts, on one node and on several.

usage: test_launch.py SHERD [--only CHECK]

Nodes are launchers on this host, which meet at an address of the loopback interface; where the kernel lets us have
network namespaces, also in two of them, with nothing in common but a wire. Lost means: killed, as by a crash of the host.
"""
import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from jobs import MARK, Job, is_alive, need, processes, read, run_checks, write_files

SECRET = "a secret of a job of the tests"
# A node that is silent for 2 s is lost; a machine under load may be silent for a while.
CONF = ["--rdzv-conf", "keep_alive_interval=0.25,keep_alive_max_attempt=8,join_timeout=40"]
LIMIT_S = 30
SAVES = "trap 'sleep 1; echo saved >$DIR/saved$RANK; exit 0' TERM HUP; echo up >$DIR/up$RANK; while :; do sleep 0.05; done"
SHOW = "echo $RANK/$WORLD_SIZE/$LOCAL_RANK/$LOCAL_WORLD_SIZE/$GROUP_RANK/$GROUP_WORLD_SIZE/$MASTER_ADDR/$TORCHELASTIC_RESTART_COUNT >$DIR/rank$RANK;" \
       "echo $MASTER_PORT/$TORCHELASTIC_RUN_ID >$DIR/id$RANK;"


class Bench:
    def __init__(self, arguments, folder):
        self.sherd, self.folder, self.count = os.path.abspath(arguments.sherd), folder, 0

    def new_folder(self):
        self.count += 1
        path = os.path.join(self.folder, f"case{self.count}")
        os.mkdir(path)
        return path


def free_port(family=socket.AF_INET, below=0):
    """One that nobody is given by chance meanwhile: outside the range from which the kernel gives ports."""
    low = int(read("/proc/sys/net/ipv4/ip_local_port_range").split()[0])
    for port in range((below or low - os.getpid() % 5000) - 1, 1024, -1):
        with socket.socket(family) as probe:
            try:
                probe.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
                return port
            except OSError:
                continue
    raise AssertionError("no free port")


class Launcher:
    """`sherd run` with options and a shell script."""

    def __init__(self, bench, folder, options, script, prefix=(), environment=(), secret=SECRET, errors=None):
        self.mark = f"{MARK}={os.path.basename(bench.folder)}-{os.path.basename(folder)}"
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("SHERD_", "TORCHELASTIC_", "OMP_"))}
        variables |= {"DIR": folder, MARK: self.mark.split("=")[1]} | dict(environment)
        if secret:
            variables["SHERD_RDZV_SECRET"] = secret
        self.errors = tempfile.TemporaryFile()
        self.began = time.monotonic()
        self.process = subprocess.Popen([*prefix, bench.sherd, "run", *options, "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=errors or self.errors, env=variables)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def end(self, limit_s=LIMIT_S):
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            need(False, f"not over after {limit_s} s; so far: {self.said()}")

    def need_end(self, code, *texts, within_s=LIMIT_S):
        got = self.end(within_s)
        need(got == code, f"exit code {got}, not {code}: {self.said()}")
        for text in texts:
            need(re.search(text, self.said()), f"does not say '{text}': {self.said()}")


def own_processes(launcher):
    return [pid for pid in processes() if is_alive(pid) and launcher.mark.encode() in read(f"/proc/{pid}/environ").split(b"\0")]


def need_nothing_left(launcher, within_s=5):
    until = time.monotonic() + within_s
    while left := own_processes(launcher):
        need(time.monotonic() < until, f"left behind: {[read(f'/proc/{pid}/cmdline') for pid in left]}")
        time.sleep(0.02)


def wait_for(folder, *names):
    until = time.monotonic() + LIMIT_S
    while missing := [name for name in names if not read(os.path.join(folder, name))]:
        need(time.monotonic() < until, f"{missing} were never written")
        time.sleep(0.01)


def wait_until(condition, otherwise):
    until = time.monotonic() + LIMIT_S
    while not condition():
        need(time.monotonic() < until, otherwise)
        time.sleep(0.02)


def text(folder, name):
    return read(os.path.join(folder, name)).decode()


class Nodes:
    """Several launchers that make one job."""

    def __init__(self, bench, scripts, options=(), host="127.0.0.1", ranks=2, numbered=True, family=socket.AF_INET, prefixes=None, more=None):
        self.bench, self.folder, self.host = bench, bench.new_folder(), host
        self.port = free_port(family)
        self.options = ["--nnodes", str(len(scripts)), "--rdzv-endpoint", f"{host}:{self.port}", "--nproc-per-node", str(ranks), *CONF, *options]
        self.scripts, self.numbered = scripts, numbered
        self.prefixes = prefixes or [()] * len(scripts)
        self.more = more or [()] * len(scripts)
        self.launchers = [self.start(node) for node in range(len(scripts))]

    def start(self, node):
        own = ["--node-rank", str(node)] if self.numbered else []
        return Launcher(self.bench, self.folder, [*self.options, *own, *self.more[node]], self.scripts[node], self.prefixes[node])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for launcher in self.launchers:
            launcher.__exit__()

    def need_ends(self, code, *texts, within_s=LIMIT_S, of=None):
        for launcher in of if of is not None else self.launchers:
            launcher.need_end(code, *texts, within_s=within_s)
        need_nothing_left(self.launchers[0])


def need_places(nodes, counts, master):
    """Every rank has been told where it is, and all the same of rank 0."""
    world, rank = sum(counts), 0
    for node, count in enumerate(counts):
        for local in range(count):
            expected = f"{rank}/{world}/{local}/{count}/{node}/{len(counts)}/{master}/0\n"
            need(text(nodes.folder, f"rank{rank}") == expected, f"rank {rank} was told {text(nodes.folder, f'rank{rank}')}, not {expected}")
            need(text(nodes.folder, f"id{rank}") == text(nodes.folder, "id0"), "ranks were told different ports or ids")
            rank += 1


# --- one node ---------------------------------------------------------------------------------------------------------

def check_options(bench):
    """torchrun's options, with _ and with -."""
    folder = bench.new_folder()
    options = ["--standalone", "--nnodes=1", "--nproc_per_node=3", "--rdzv_backend=c10d", "--rdzv-endpoint=localhost:0", "--max_restarts", "2",
               "--monitor_interval=0.5", "--role", "trainer"]
    with Launcher(bench, folder, options, SHOW + "echo $ROLE_NAME$TORCHELASTIC_MAX_RESTARTS${TORCHELASTIC_USE_AGENT_STORE-} >$DIR/more") as launcher:
        launcher.need_end(0)
    for rank in range(3):
        need(text(folder, f"rank{rank}") == f"{rank}/3/{rank}/3/0/1/127.0.0.1/0\n", text(folder, f"rank{rank}"))
    need(text(folder, "more") == "trainer2\n", text(folder, "more"))
    port = free_port()
    with Launcher(bench, folder, ["--master-addr=[::1]", f"--master-port={port}", "--rdzv-id", "job-7"], SHOW) as launcher:
        launcher.need_end(0)
    need(text(folder, "id0") == f"{port}/job-7\n" and "/::1/" in text(folder, "rank0"), text(folder, "id0"))
    for options, said in ((["--rdzv-backend=etcd"], "etcd"), (["--nnodes=1:4"], "1:4"), (["--nproc-per-node=many"], "many"), (["--node-rank=1"], "node-rank"),
                          (["--rdzv-conf=color=red"], "color"), (["--rdzv-conf=keep_alive_max_attempt=1"], "whole number from 2"),
                          (["--rdzv-conf=join_timeout=9,keep_alive_max_attempt=2.5"], "whole number from 2"),
                          (["--rdzv-conf=keep_alive_max_attempt"], "whole number from 2"), (["--nnodes=2"], "rdzv-endpoint"), (["--rdzv-endpoint=a:b"], "rdzv-endpoint"),
                          (["--nnodes=2", "--node-rank=2", "--rdzv-endpoint=localhost"], "numbered from 0")):
        with Launcher(bench, folder, options, "exit 0") as launcher:
            launcher.need_end(2, said)
    with Launcher(bench, folder, ["--nnodes=2", "--rdzv-endpoint=localhost"], "exit 0", secret=None) as launcher:
        launcher.need_end(2, "SHERD_RDZV_SECRET")
    with Launcher(bench, folder, ["--nnodes=2", "--rdzv-endpoint=localhost"], "exit 0", secret="short") as launcher:
        launcher.need_end(2, "secret")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with Launcher(bench, folder, ["--master-port", str(taken.getsockname()[1])], "exit 0") as launcher:
            launcher.need_end(1, f"port {taken.getsockname()[1]}", within_s=5)


def check_python(bench):
    """Scripts of Python are given to Python, as torchrun does."""
    folder = bench.new_folder()
    script = os.path.join(folder, "program.py")
    with open(script, "w") as file:
        file.write("import os, sys\nopen(os.environ['DIR'] + '/arguments', 'w').write(' '.join(sys.argv[1:]) + os.environ['RANK'])\n")
    environment = {**os.environ, "DIR": folder}
    need(subprocess.run([bench.sherd, "run", script, "--epochs", "3"], env=environment).returncode == 0, "a script was not run")
    need(text(folder, "arguments") == "--epochs 30", text(folder, "arguments"))
    got = subprocess.run([bench.sherd, "run", "-m", "platform", "--terse"], env=environment, capture_output=True)
    need(got.returncode == 0 and got.stdout.strip(), f"a module was not run: {got}")
    got = subprocess.run([bench.sherd, "run", "--no-python", script], env=environment, capture_output=True)
    need(got.returncode == 126, f"--no-python executes: {got}")


def check_exit_codes(bench):
    for script, code in (("exit 0", 0), ("[ $RANK = 1 ] && exit 9; sleep 20", 9), ("[ $RANK = 2 ] && kill -SEGV $$; sleep 20", 139),
                         ("[ $RANK = 0 ] && exit 0; sleep 0.1; exit 0", 0)):
        with Launcher(bench, bench.new_folder(), ["-n", "3"], script) as launcher:
            launcher.need_end(code, within_s=10)
            need_nothing_left(launcher)


def check_signals(bench):
    """Passed on; the second stop, and the end of --shutdown-timeout, kill."""
    script = "trap 'echo usr1 >$DIR/usr1-$RANK' USR1; trap 'echo usr2 >$DIR/usr2-$RANK' USR2; trap '' TERM INT HUP; echo up >$DIR/up$RANK; while :; do sleep 0.05; done"
    for first, second in ((signal.SIGTERM, signal.SIGINT), (signal.SIGHUP, signal.SIGTERM)):
        folder = bench.new_folder()
        with Launcher(bench, folder, ["-n", "2"], script) as launcher:
            wait_for(folder, "up0", "up1")
            launcher.process.send_signal(signal.SIGUSR1)
            launcher.process.send_signal(signal.SIGUSR2)
            wait_for(folder, "usr1-0", "usr1-1", "usr2-0", "usr2-1")
            launcher.process.send_signal(first)
            time.sleep(0.6)
            need(launcher.process.poll() is None, "killed at the first signal")
            launcher.process.send_signal(second)
            launcher.need_end(128 + first, within_s=5)
            need_nothing_left(launcher)
    folder = bench.new_folder()
    with Launcher(bench, folder, ["-n", "2", "--shutdown-timeout", "0.5"], script) as launcher:
        wait_for(folder, "up0", "up1")
        launcher.process.send_signal(signal.SIGTERM)
        launcher.need_end(143, "had not ended after 0.5 s", within_s=5)
        need_nothing_left(launcher)
    folder = bench.new_folder()
    with Launcher(bench, folder, ["-n", "2"], SAVES) as launcher:  # as of `timeout`, systemd: one stop that comes twice
        wait_for(folder, "up0", "up1")
        launcher.process.send_signal(signal.SIGHUP)
        launcher.process.send_signal(signal.SIGTERM)
        launcher.need_end(0, within_s=10)
        wait_for(folder, "saved0", "saved1")


def check_restarts(bench):
    folder = bench.new_folder()
    script = "echo $TORCHELASTIC_RESTART_COUNT/$MASTER_PORT >>$DIR/attempts$RANK; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 5"
    with Launcher(bench, folder, ["-n", "2", "--max-restarts", "3", "--restart-delay", "0.1"], script) as launcher:
        launcher.need_end(0, "restart 1 of 3 in 0.1 s", "restart 2 of 3 in 0.2 s")
        need("restart 3" not in launcher.said(), launcher.said())
    need([line.split("/")[0] for line in text(folder, "attempts0").split()][-1] == "2", text(folder, "attempts0"))
    with Launcher(bench, folder, ["--max-restarts", "1", "--restart-delay", "0"], "exit 6") as launcher:
        launcher.need_end(6)
    with Launcher(bench, folder, ["--max-restarts", "1", "--restart-delay", "60"], "exit 6") as launcher:  # stopped before it
        wait_until(lambda: "restart 1 of 1 in 60 s" in launcher.said(), "no restart is said")
        launcher.process.send_signal(signal.SIGTERM)
        launcher.need_end(143, "stopped by signal 15", within_s=5)
        need(launcher.said().count("failed with exit code 6") == 1, f"the failure is not said once: {launcher.said()}")
    port, again = free_port(), bench.new_folder()  # a second attempt that cannot start is no failure of the rank before
    with Launcher(bench, again, ["--max-restarts", "1", "--restart-delay", "1", "--master-port", str(port)], "echo up >$DIR/up; exit 6") as launcher:
        wait_until(lambda: "restart 1 of 1" in launcher.said(), "no restart is said")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", port))
            taken.listen()
            launcher.need_end(1, f"port {port}", within_s=10)


def check_descriptors(bench):
    """A launcher takes as many as it needs, whatever the soft limit; its ranks have that limit."""
    folder = bench.new_folder()
    options = ["-n", "40", "-t", "3", "--log-dir", folder]
    with Launcher(bench, folder, options, "ulimit -Sn >$DIR/limit$RANK; while [ ! -s $DIR/limit39 ]; do sleep 0.1; done", prefix=["sh", "-c", 'ulimit -Sn 100 && exec "$@"', "sh"]) as launcher:
        launcher.need_end(0)
    need({text(folder, f"limit{rank}") for rank in range(40)} == {"100\n"}, text(folder, "limit0"))


def check_nobody_reads(bench):
    """A standard error that is closed (`2>&1 | tee log`, whose tee ends) costs what is said, and nothing else."""
    folder = bench.new_folder()
    script = "grep SigIgn /proc/self/status >$DIR/ignored; echo up >$DIR/up; while [ ! -e $DIR/go ]; do sleep 0.02; done; " \
             "echo $TORCHELASTIC_RESTART_COUNT >$DIR/at; exit 7"
    reader, writer = os.pipe()
    with Launcher(bench, folder, ["--max-restarts", "1", "--restart-delay", "0", "--log-dir", folder], script, errors=writer) as launcher:
        os.close(writer)
        wait_for(folder, "up")
        os.close(reader)
        open(os.path.join(folder, "go"), "w").close()
        got = launcher.process.wait(LIMIT_S)
        need(got == 7, f"exit code {got}")
        need_nothing_left(launcher)
    need(text(folder, "at") == "1\n", "was not restarted")
    need(json.loads(text(folder, "failure.json"))["exit_code"] == 7, "no report")
    need(int(text(folder, "ignored").split()[1], 16) >> (signal.SIGPIPE - 1) & 1 == 0, "ranks ignore SIGPIPE")


def check_killed_launcher(bench):
    """Nothing that ranks have started survives, in whatever session it is."""
    folder = bench.new_folder()
    script = "sleep 300 & setsid sleep 300 & setsid sh -c 'setsid sleep 300 & exec sleep 300' & echo up >$DIR/up$RANK; wait"
    with Launcher(bench, folder, ["-n", "3"], script) as launcher:
        wait_for(folder, "up0", "up1", "up2")
        until = time.monotonic() + LIMIT_S
        while len(own_processes(launcher)) < 1 + 3 * 5:
            need(time.monotonic() < until, "processes never came")
            time.sleep(0.02)
        launcher.process.kill()
        launcher.end()
        need_nothing_left(launcher)


def guard_of(launcher):
    """The process that guards what a launcher has started, or None."""
    children = read(f"/proc/{launcher.process.pid}/task/{launcher.process.pid}/children").split()
    return next((int(pid) for pid in children if read(f"/proc/{pid.decode()}/comm") == b"sherd-guard\n"), None)


def check_killed_guard(bench):
    """A guard that is killed, as for want of memory, is replaced, and that is said."""
    for killed in (False, True):
        folder = bench.new_folder()
        with Launcher(bench, folder, ["-n", "2"], "setsid sleep 300 & echo up >$DIR/up$RANK; while [ ! -e $DIR/go ]; do sleep 0.05; done") as launcher:
            wait_for(folder, "up0", "up1")
            first = guard_of(launcher)
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: guard_of(launcher) not in (None, first), "no other guard")
            if killed:
                launcher.process.kill()
                launcher.end()
            else:
                open(os.path.join(folder, "go"), "w").close()
                launcher.need_end(0, "the guard process of the ranks was killed; another was started")
            need_nothing_left(launcher)


def own_group():
    """The folder of this process's control group, in which launchers may make theirs; None: they may not."""
    path = [line[3:].rstrip("\n") for line in open("/proc/self/cgroup") if line.startswith("0::/")]
    mounts = [line.split() for line in open("/proc/self/mountinfo") if " - cgroup2 " in line]
    folders = [words[4] + path[0] for words in mounts if path and words[3] == "/"]
    return next((folder for folder in folders if os.access(os.path.join(folder, "cgroup.procs"), os.W_OK) and os.access(folder, os.W_OK)), None)


def check_killed_nested_launchers(bench):
    """A launcher that is a rank of another, and daemons without an environment: where control groups may be made, nothing
    survives, whichever of the two is killed."""
    group = own_group()
    if not group:
        print("no control group of version 2 in which launchers may make others: not tried")
        return
    inner = "setsid sh -c 'setsid env -i sleep 300 & echo $! >$DIR/daemon'$RANK; echo up >$DIR/up$RANK; sleep 300"
    for outer_dies in (True, False):
        folder = bench.new_folder()
        script = 'echo $$ >$DIR/inner; exec "$SHERD" run -n 2 sh -c "$INNER"'
        with Launcher(bench, folder, ["-n", "1"], script, environment={"SHERD": bench.sherd, "INNER": inner}) as launcher:
            wait_for(folder, "inner", "up0", "up1")
            daemons = [int(text(folder, name)) for name in ("daemon0", "daemon1")]
            inner_pid = int(text(folder, "inner"))
            outer_groups = [name for name in os.listdir(group) if name.startswith(f"sherd-{launcher.process.pid}-")]
            need(len(outer_groups) == 1, f"groups {outer_groups}")
            path = os.path.join(group, outer_groups[0])
            need([name for name in os.listdir(path) if name.startswith(f"sherd-{inner_pid}-")], "the inner launcher has no group")
            need(all(is_alive(pid) for pid in daemons), "no daemons")
            os.kill(launcher.process.pid if outer_dies else inner_pid, signal.SIGKILL)
            code = launcher.end()
            need(code == (-signal.SIGKILL if outer_dies else 128 + signal.SIGKILL), f"exit code {code}")
            wait_until(lambda: not any(is_alive(pid) for pid in daemons), "a daemon survives")
            wait_until(lambda: not os.path.exists(path), "the group is left")
            need_nothing_left(launcher)


def check_many_at_once(bench):
    """Twenty jobs that start together have ports and names of their own."""
    folders = [bench.new_folder() for _ in range(20)]
    script = SHOW + "while [ ! -e $GO ]; do sleep 0.05; done"
    go = os.path.join(bench.folder, "go")
    launchers = [Launcher(bench, folder, ["-n", "2"], script, environment={"GO": go}) for folder in folders]
    for folder in folders:
        wait_for(folder, "id0", "id1")
    ids = {text(folder, "id0").strip() for folder in folders}
    ports = {one.split("/")[0] for one in ids}
    with open(go, "w") as file:
        file.write("go")
    for launcher in launchers:
        launcher.need_end(0)
    need(len(ids) == 20 and len(ports) == 20, f"{len(ports)} ports of 20 jobs")


# --- training ---------------------------------------------------------------------------------------------------------

STEPS = ["train.steps=12", "checkpoint.every=3"]
# Variables of rank {rank} of two, as launchers set them, and those of which a part or one rank means nothing.
LAUNCHERS = {
    "torchrun": {"RANK": "{rank}", "WORLD_SIZE": "2", "LOCAL_RANK": "{rank}", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"},
    "Open MPI": {"OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "{rank}", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                 "PMIX_NAMESPACE": "1234"},
    "MPICH": {"PMI_RANK": "{rank}", "PMI_SIZE": "2", "MPI_LOCALRANKID": "{rank}", "MPI_LOCALNRANKS": "2"},
    "Slurm": {"SLURM_PROCID": "{rank}", "SLURM_LOCALID": "{rank}", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"},
}


def train(bench, job, folder, *options, settings=(), environment=(), prefix=()):
    command = [*prefix, bench.sherd, "train", job, *options, "--set", f"run.dir={folder}"]
    for setting in (*STEPS, *settings):
        command += ["--set", setting]
    clean = {k: v for k, v in os.environ.items() if not any(k in names for names in LAUNCHERS.values())}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=clean | dict(environment))


def finish(process):
    try:
        said = process.communicate(timeout=60)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        need(False, f"not over after 60 s: {process.communicate()[1]}")
    return process.returncode, said


def numbers(folder):
    return [(row["step"], row["loss"], row["grad_norm"]) for row in map(json.loads, text(folder, "metrics.jsonl").splitlines())]


def reference(bench):
    """A job and the numbers of its 12 steps."""
    folder = bench.new_folder()
    job = write_files(folder)
    code, said = finish(train(bench, job, folder, "-n", "2"))
    need(code == 0, said)
    return job, numbers(folder)


def check_joining(bench):
    """By the variables of every launcher, with the same bits; a part of a set changes nothing."""
    job, expected = reference(bench)
    for launcher, variables in LAUNCHERS.items():
        folder = bench.new_folder()
        ranks = [train(bench, job, folder, environment={k: v.format(rank=rank) for k, v in variables.items()}) for rank in range(2)]
        for code, said in map(finish, ranks):
            need(code == 0, f"{launcher}: exit code {code}: {said}")
            if "joining" in said:
                need(f"joining a job of 2 ranks, told by {launcher}'s variables" in said, said)
        need(numbers(folder) == expected, f"{launcher}: other numbers")
        if launcher == "torchrun":
            continue
        names = list(variables)
        for part in (names[:1], names[1:], names[:-1]):
            code, said = finish(train(bench, job, bench.new_folder(), settings=["run.ranks=2"], environment={k: variables[k].format(rank=0) for k in part}))
            need(code == 0 and "joining" not in said, f"{launcher}, only {part}: {code}: {said}")
    several = {**LAUNCHERS["Slurm"], "SLURM_STEP_NUM_NODES": "2"}
    code, said = finish(train(bench, job, bench.new_folder(), environment={k: v.format(rank=0) for k, v in several.items()}))
    need(code == 2 and "backend that crosses hosts, NCCL or MPI" in said, f"{code}: {said}")
    with Nodes(bench, [f"exec {bench.sherd} train {job} --set run.dir=$DIR"] * 2, ranks=1) as nodes:
        nodes.need_ends(2)
        need(any("backend that crosses hosts, NCCL or MPI" in one.said() for one in nodes.launchers), [one.said() for one in nodes.launchers])


def check_shells_around_ranks(bench):
    """Ranks whose launcher names no job know it by its process, also where each is in shells with environments as those of modules."""
    job, expected = reference(bench)
    folder = bench.new_folder()
    ranks = [train(bench, job, folder, settings=["run.start_timeout_s=20"], prefix=["sh", "-c", '"$@"; exit $?', "sh"],
                   environment={"LOADED_MODULES": "x" * 20000, **{k: v.format(rank=rank) for k, v in LAUNCHERS["MPICH"].items()}}) for rank in range(2)]
    for code, said in map(finish, ranks):
        need(code == 0, f"exit code {code}: {said}")
    need(numbers(folder) == expected, "other numbers")


def check_restarts_of_training(bench):
    """A job of which a rank is killed goes on from its newest checkpoint, with the same bits, though it was to start anew."""
    job, expected = reference(bench)
    for resume in ("auto", "never"):
        folder = bench.new_folder()
        with Job(bench.sherd, job, 2, ["train.steps=12", "checkpoint.every=3", f"checkpoint.resume={resume}", "run.timeout_s=20"], folder,
                 options=["--max-restarts", "2", "--restart-delay", "0.1"]) as running:
            running.wait_for(lambda: os.path.isdir(f"{folder}/checkpoints/step-00000003"), "a checkpoint")
            for pid in running.rank_pids().values():
                running.signal(pid, signal.SIGKILL)
                break
            code, said = running.wait(60), running.said()
            need(code == 0, f"exit code {code}: {said}")
            if "restart 1 of 2 in 0.1 s" not in said:
                print("  note: the job was over before its rank was killed", flush=True)
            else:
                need("was killed by signal 9" in said and re.search(r"step-000000\d\d: \d+ of 12 steps are done", said), f"did not go on: {said}")
        need(numbers(folder) == expected, f"resume {resume}: other numbers")
    with Job(bench.sherd, job, 2, ["train.steps=100000"], bench.new_folder(), options=["--max-restarts", "1", "--restart-delay", "60"]) as running:
        running.wait_for(lambda: len(running.rows()) > 0, "a step")
        for pid in running.rank_pids().values():
            running.signal(pid, signal.SIGKILL)
            break
        running.wait_for(lambda: "restart 1 of 1 in 60 s" in running.said(), "a restart")
        running.launcher.send_signal(signal.SIGTERM)
        code, said = running.wait(10), running.said()
        need(code == 143 and "stopped by signal 15" in said, f"exit code {code}: {said}")
        need(said.count("was killed by signal 9") == 1, f"the failure is not said once: {said}")


def check_no_restarts(bench):
    """Never for a bad job or bad data; never without being asked."""
    job, _ = reference(bench)
    for settings, code in ((["train.global_batch=7"], 2), (["data.train=/no/such/file"], 3)):
        got, said = finish(train(bench, job, bench.new_folder(), "-n", "2", "--max-restarts", "5", settings=settings))
        need(got == code and "restart" not in said, f"exit code {got}: {said}")


# --- several nodes ----------------------------------------------------------------------------------------------------

def check_nodes(bench):
    """IPv4, IPv6, a name; numbered and as they come; ranks unevenly divided."""
    for host, family, master in (("127.0.0.1", socket.AF_INET, "127.0.0.1"), ("[::1]", socket.AF_INET6, "::1"), ("localhost", socket.AF_INET, "localhost")):
        if family == socket.AF_INET6 and not has_ipv6():
            print("  note: no IPv6 on the loopback interface", flush=True)
            continue
        for numbered in (True, False):
            with Nodes(bench, [SHOW] * 2, host=host, family=family, numbered=numbered) as nodes:
                nodes.need_ends(0)
                need_places(nodes, [2, 2], master)
    with Nodes(bench, [SHOW] * 3, more=[["-n", "1"], ["-n", "3"], ["-n", "2"]]) as nodes:
        nodes.need_ends(0)
        need_places(nodes, [1, 3, 2], "127.0.0.1")


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def check_master_of_nodes(bench):
    """Address and port of rank 0 can be chosen where several nodes meet; a busy port is an error in seconds."""
    port = free_port(below=free_port())
    with Nodes(bench, [SHOW] * 2, ["--master-addr=node-0.example", f"--master-port={port}"]) as nodes:
        nodes.need_ends(0)
        for rank in range(4):
            need(text(nodes.folder, f"id{rank}").startswith(f"{port}/"), text(nodes.folder, f"id{rank}"))
            need("/node-0.example/" in text(nodes.folder, f"rank{rank}"), text(nodes.folder, f"rank{rank}"))
    with Nodes(bench, [SHOW] * 2, ["--master-addr=node-0.example"], more=[["--local-addr=inner.example"], ["--local-addr=other.example"]]) as nodes:
        nodes.need_ends(0)
        for rank in range(4):
            need("/inner.example/" in text(nodes.folder, f"rank{rank}"), text(nodes.folder, f"rank{rank}"))
    folder, options = bench.new_folder(), ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", *CONF]  # without an endpoint: where nodes meet
    with Launcher(bench, folder, options, SHOW) as one, Launcher(bench, folder, options, SHOW) as other:
        one.need_end(0)
        other.need_end(0)
    need(int(text(folder, "id0").split("/")[0]) != port and "/127.0.0.1/" in text(folder, "rank0"), text(folder, "id0"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with Nodes(bench, [SHOW] * 2, [f"--master-port={taken.getsockname()[1]}"]) as nodes:
            nodes.launchers[0].need_end(1, f"port {taken.getsockname()[1]} cannot be used", within_s=10)


def check_failing_rank(bench):
    """One node's failing rank ends the job on all nodes, with the same verdict."""
    wait = "sleep 60"
    for how, code, words in (("exit 7", 7, "failed with exit code 7"), ("kill -SEGV $$", 139, "was killed by signal 11")):
        with Nodes(bench, [wait, f"[ $RANK = 3 ] && sleep 0.2 && {how}; {wait}", wait]) as nodes:
            nodes.need_ends(code, rf"rank 3 of 6 \(node 1, \S+, pid \d+\) {words}", within_s=10)
    folder = bench.new_folder()
    port = free_port()
    options = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", *CONF]
    with Launcher(bench, folder, [*options, "--node-rank", "0"], wait) as first, \
            Launcher(bench, folder, [*options, "--node-rank", "1", "/no/such/program"], wait) as second:
        second.need_end(127, "no/such/program", within_s=10)
        first.need_end(127, r"rank 1 of 2 \(node 1,", within_s=10)


def check_one_ends_early(bench):
    """A node whose ranks are done waits for the others, and fails with them."""
    with Nodes(bench, ["exit 0", "sleep 0.5; exit 0"]) as nodes:
        nodes.need_ends(0)
    with Nodes(bench, ["exit 0", "sleep 0.5; exit 3"]) as nodes:
        nodes.need_ends(3, "node 1")


def check_lost_node(bench):
    """Killed launchers: of another node, and of the one that serves the store."""
    script = "echo up >$DIR/up$RANK; sleep 60"
    for victim in (1, 0):
        with Nodes(bench, [script] * 3, ranks=1) as nodes:
            wait_for(nodes.folder, "up0", "up1", "up2")
            nodes.launchers[victim].process.kill()
            began = time.monotonic()
            nodes.need_ends(1, rf"node {victim} \(\S+\) (is lost|cannot be reached)", of=[l for n, l in enumerate(nodes.launchers) if n != victim])
            print(f"  node {victim} killed: over after {time.monotonic() - began:.1f} s", flush=True)


def check_blamed_for_a_lost_node(bench):
    """A rank that fails because another node is gone is the first failure; that the node is gone is said all the same."""
    with Nodes(bench, ["echo up >$DIR/up0; while [ ! -e $DIR/gone ]; do sleep 0.02; done; exit 9", "echo up >$DIR/up1; sleep 60"], ranks=1) as nodes:
        wait_for(nodes.folder, "up0", "up1")
        nodes.launchers[1].process.kill()
        with open(os.path.join(nodes.folder, "gone"), "w") as file:
            file.write("gone")
        nodes.need_ends(9, r"rank 0 of 2 .* exit code 9", r"node 1 \(\S+\) did not take its leave", of=nodes.launchers[:1])


def check_slow_leave(bench):
    """Nodes that need long to end, and those that have left before them, were not lost."""
    saves = "trap 'sleep 7; exit 0' TERM; echo up >$DIR/up$RANK; while :; do sleep 0.05; done"
    with Nodes(bench, ["trap 'exit 9' TERM; echo up >$DIR/up$RANK; while :; do sleep 0.05; done"] * 2 + [saves], ranks=1) as nodes:
        wait_for(nodes.folder, "up0", "up1", "up2")
        nodes.launchers[0].process.send_signal(signal.SIGTERM)
        nodes.need_ends(9, "exit code 9", within_s=20)
        need(all("did not take its leave" not in one.said() for one in nodes.launchers), nodes.launchers[0].said())
    conf = ["--rdzv-conf", "keep_alive_interval=1"]
    with Nodes(bench, ["until [ -e $DIR/go ]; do sleep 0.05; done; exit 5", "echo up >$DIR/up$RANK; sleep 60"], conf, ranks=1) as nodes:
        wait_for(nodes.folder, "up1")  # a stop ends the wait for a node that says nothing, and what has happened is told
        nodes.launchers[1].process.send_signal(signal.SIGSTOP)
        with open(os.path.join(nodes.folder, "go"), "w") as file:
            file.write("go")
        time.sleep(1)
        need(nodes.launchers[0].process.poll() is None, f"does not wait: {nodes.launchers[0].said()}")
        for number in (signal.SIGUSR1, signal.SIGHUP):
            nodes.launchers[0].process.send_signal(number)
        nodes.launchers[0].need_end(5, "exit code 5", within_s=4)


def check_stop_of_what_is_done(bench):
    """One that comes when all ranks have ended well, and a launcher waits for others to take their leave, changes nothing."""
    conf = ["--rdzv-conf", "keep_alive_interval=1"]
    with Nodes(bench, ["until [ -e $DIR/go ]; do sleep 0.05; done", "echo up >$DIR/up"], conf, ranks=1) as nodes:
        wait_for(nodes.folder, "up")
        time.sleep(1)  # that it is done is said by then
        nodes.launchers[1].process.send_signal(signal.SIGSTOP)
        open(os.path.join(nodes.folder, "go"), "w").close()
        time.sleep(1)
        need(nodes.launchers[0].process.poll() is None, f"does not wait: {nodes.launchers[0].said()}")
        for number in (signal.SIGUSR1, signal.SIGHUP):
            nodes.launchers[0].process.send_signal(number)
        nodes.launchers[0].need_end(0, within_s=4)


def check_first_node_that_hangs(bench):
    """Node 0 answers nothing: the others watch their ranks all the same."""
    script = "trap 'echo usr1 >$DIR/usr1' USR1; trap '' TERM; echo $$ >$DIR/up$RANK; while [ $RANK != 1 ] || [ ! -e $DIR/go ]; do sleep 0.05; done; exit 5"
    conf = ["--rdzv-conf", "keep_alive_interval=5,keep_alive_max_attempt=8"]
    with Nodes(bench, ["echo up >$DIR/up0; sleep 60", script], conf, more=[["-n", "1"], ["-n", "2"]]) as nodes:
        wait_for(nodes.folder, "up0", "up1", "up2")
        nodes.launchers[0].process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        with open(os.path.join(nodes.folder, "go"), "w") as file:
            file.write("go")
        wait_until(lambda: not is_alive(int(text(nodes.folder, "up1"))), "rank 1 does not fail")
        time.sleep(0.3)
        nodes.launchers[1].process.send_signal(signal.SIGUSR1)
        wait_for(nodes.folder, "usr1")
        began = time.monotonic()
        wait_until(lambda: not is_alive(int(text(nodes.folder, "up2"))), "rank 2 is not ended")
        need(time.monotonic() - began < 10, "rank 2 is ended late")
        nodes.launchers[0].process.send_signal(signal.SIGCONT)
        nodes.need_ends(5, r"rank 1 of 3 \(node 1, .*\) failed with exit code 5", within_s=20)


def check_stopped_node(bench):
    """A node that stands still for a moment is not lost."""
    with Nodes(bench, ["echo up >$DIR/up$RANK; sleep 3"] * 2, ranks=1) as nodes:
        wait_for(nodes.folder, "up0", "up1")
        for launcher in nodes.launchers:
            launcher.process.send_signal(signal.SIGSTOP)
            time.sleep(0.8)
            launcher.process.send_signal(signal.SIGCONT)
        nodes.need_ends(0)


def check_restarts_of_nodes(bench):
    """All nodes start again, and meet anew: with another port."""
    script = "echo $TORCHELASTIC_RESTART_COUNT/$MASTER_PORT >>$DIR/attempts$RANK; [ $RANK = 2 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] && sleep 0.5 && exit 5; " \
             "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 60"
    with Nodes(bench, [script] * 2, ["--max-restarts", "2", "--restart-delay", "0.1"]) as nodes:
        nodes.need_ends(0, "restart 1 of 2")
        told = [text(nodes.folder, f"attempts{rank}").split() for rank in range(4)]
        need(all(one == told[2] for one in told), f"ranks were told different things: {told}")
        need([one.split("/")[0] for one in told[0]] == ["0", "1"] and len({one.split("/")[1] for one in told[0]}) == 2, f"{told[0]}")
    with Nodes(bench, ["exit 4"] * 2, ["--max-restarts", "1", "--restart-delay", "0"]) as nodes:
        nodes.need_ends(4)


def check_replaced_node(bench):
    """With restarts left, a lost node may be started again."""
    script = "echo $TORCHELASTIC_RESTART_COUNT >>$DIR/attempts$RANK; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 60"
    with Nodes(bench, [script] * 3, ["--max-restarts", "1", "--restart-delay", "0"], ranks=1) as nodes:
        wait_for(nodes.folder, "attempts0", "attempts1", "attempts2")
        nodes.launchers[1].process.kill()
        nodes.launchers[1].end()
        nodes.launchers[1] = nodes.start(1)
        nodes.need_ends(0)
        need([text(nodes.folder, f"attempts{rank}") for rank in range(3)] == ["0\n1\n"] * 3, "not all were started twice")


def check_lost_node_that_wakes_up(bench):
    """It ends, and disturbs nobody: neither those that wait for another one in its place, nor when that one runs."""
    script = "echo $TORCHELASTIC_RESTART_COUNT >>$DIR/attempts$RANK; until [ -e $DIR/go ]; do sleep 0.05; done"
    for late in (False, True):
        with Nodes(bench, [script] * 3, ["--max-restarts", "1", "--restart-delay", "0"], ranks=1) as nodes:
            wait_for(nodes.folder, "attempts0", "attempts1", "attempts2")
            lost = nodes.launchers[1]
            lost.process.send_signal(signal.SIGSTOP)
            wait_until(lambda: all("restart 1 of 1" in nodes.launchers[node].said() for node in (0, 2)), "node 1 was never lost")
            if late:
                nodes.launchers[1] = nodes.start(1)
                wait_until(lambda: all(text(nodes.folder, f"attempts{rank}") == "0\n1\n" for rank in range(3)), "no second attempt")
            lost.process.send_signal(signal.SIGCONT)
            lost.need_end(1, "taken this node for lost", within_s=10)
            lost.__exit__()
            time.sleep(1)
            if not late:
                nodes.launchers[1] = nodes.start(1)
                wait_until(lambda: all(text(nodes.folder, f"attempts{rank}") == "0\n1\n" for rank in range(3)), "no second attempt")
            with open(os.path.join(nodes.folder, "go"), "w") as file:
                file.write("go")
            nodes.need_ends(0)


def check_stop_of_nodes(bench):
    """One node that is told to stop stops all."""
    for number in (signal.SIGTERM, signal.SIGINT):  # ranks that take it as the end of their work
        with Nodes(bench, ["trap 'echo told >$DIR/told$RANK; exit 0' TERM INT; echo up >$DIR/up$RANK; while :; do sleep 0.05; done"] * 2, ranks=1) as nodes:
            wait_for(nodes.folder, "up0", "up1")
            nodes.launchers[1].process.send_signal(number)
            nodes.need_ends(0, within_s=10)
            wait_for(nodes.folder, "told0", "told1")
    with Nodes(bench, ["echo up >$DIR/up$RANK; sleep 60"] * 2, ranks=1) as nodes:
        wait_for(nodes.folder, "up0", "up1")
        nodes.launchers[0].process.send_signal(signal.SIGTERM)
        nodes.need_ends(143, r"stopped by signal 15", within_s=10)
    with Nodes(bench, ["echo up >$DIR/up$RANK; sleep 60"] * 2, ["--max-restarts", "1"], ranks=1) as nodes:
        wait_for(nodes.folder, "up0", "up1")
        for number in (signal.SIGSTOP, signal.SIGHUP, signal.SIGTERM, signal.SIGCONT):  # both wait when the first is told on
            nodes.launchers[1].process.send_signal(number)
        nodes.need_ends(129, "stopped by signal 1", within_s=10)
    with Nodes(bench, [SAVES] * 2, ranks=1) as nodes:  # as schedulers do it: all are told, one after the other
        wait_for(nodes.folder, "up0", "up1")
        nodes.launchers[0].process.send_signal(signal.SIGTERM)
        time.sleep(0.4)
        nodes.launchers[1].process.send_signal(signal.SIGTERM)
        nodes.need_ends(0, within_s=10)
        wait_for(nodes.folder, "saved0", "saved1")


def watches_signals(launcher):
    """Whether TERM waits until the launcher takes it."""
    blocked = re.search(rb"SigBlk:\s*(\w+)", read(f"/proc/{launcher.process.pid}/status"))
    return blocked and int(blocked[1], 16) >> (signal.SIGTERM - 1) & 1


def check_stop_while_meeting(bench):
    folder = bench.new_folder()
    options = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", *CONF]
    for node in ("0", "1"):  # one that serves and waits for the other, one that waits for the server
        with Launcher(bench, folder, [*options, "--node-rank", node], "exit 0") as launcher:
            wait_until(lambda: watches_signals(launcher), "signals are not watched")
            time.sleep(0.3)
            launcher.process.send_signal(signal.SIGTERM)
            launcher.need_end(143, within_s=5)
    with Nodes(bench, ["echo up >$DIR/up$RANK; sleep 60"] * 3, ["--max-restarts", "1", "--restart-delay", "0"], ranks=1) as nodes:
        wait_for(nodes.folder, "up0", "up1", "up2")  # one of those that wait for another one: all are stopped
        nodes.launchers[2].process.kill()
        nodes.launchers[2].end()
        wait_until(lambda: all("restart 1 of 1" in one.said() for one in nodes.launchers[:2]), "node 2 was never lost")
        nodes.launchers[1].process.send_signal(signal.SIGTERM)
        nodes.need_ends(143, "stopped by signal 15", within_s=5, of=nodes.launchers[:2])


def check_stop_before_a_restart(bench):
    """While a node waits for the restart and another still ends its ranks, one of them is told to stop: that is the end of both."""
    scripts = ["trap 'echo told >$DIR/told; sleep 2; exit 0' TERM; echo up >$DIR/up; while :; do sleep 0.05; done",
               "until [ -e $DIR/up ]; do sleep 0.05; done; exit 5"]
    for told in (1, 0):
        with Nodes(bench, scripts, ["--max-restarts", "1", "--restart-delay", "25"], ranks=1) as nodes:
            wait_until(lambda: "restart 1 of 1" in nodes.launchers[1].said(), "no restart is said")
            wait_for(nodes.folder, "told")
            nodes.launchers[told].process.send_signal(signal.SIGTERM)
            nodes.need_ends(143, "failed with exit code 5", "stopped by signal 15", within_s=15)


def check_strangers(bench):
    """Wrong secrets, other programs, nodes too many, and what does not fit together."""
    folder = bench.new_folder()
    port = free_port()
    options = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", *CONF]
    with Launcher(bench, folder, [*options, "--node-rank", "0"], "exit 0") as first:
        with Launcher(bench, folder, [*options, "--node-rank", "1"], "exit 0", secret="another secret of the tests") as wrong:
            wrong.need_end(1, "secret", within_s=10)
        with Launcher(bench, folder, [*options, "--node-rank", "0"], "exit 0") as busy:
            busy.need_end(1, str(port), within_s=5)
        with socket.create_connection(("127.0.0.1", port)) as garbage:
            garbage.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        with Launcher(bench, folder, [*options[:1], "3", *options[2:], "--node-rank", "1"], "exit 0") as other:
            other.need_end(1, "nnodes 2, and this one 3", within_s=10)
        first.need_end(1, "nnodes 3|has left", within_s=10)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        with Launcher(bench, folder, ["--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", endpoint, *CONF], "exit 0") as launcher:
            launcher.need_end(1, str(taken.getsockname()[1]), within_s=5)
    with Nodes(bench, ["echo 1 >$DIR/up$RANK; sleep 4"] * 2, ranks=1) as nodes:
        wait_for(nodes.folder, "up0", "up1")
        with Launcher(bench, folder, [*nodes.options, "--node-rank", "1"], "exit 0") as third:
            third.need_end(1, "node 1 of the job is taken, by", within_s=20)
        nodes.need_ends(0)


def check_missing_node(bench):
    options = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-conf", "join_timeout=1"]
    with Launcher(bench, bench.new_folder(), [*options, "--node-rank", "0"], "exit 0") as launcher:
        launcher.need_end(1, "1 of 2 nodes were there within 1 s; missing: node 1", within_s=10)


def check_port_of_nobody(bench):
    """Without --node-rank too, a port that cannot be had is an error in seconds, and nobody is waited for."""
    def launcher(port, prefix=()):
        return Launcher(bench, bench.new_folder(), ["--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", *CONF], "exit 0", prefix=prefix)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with launcher(silent.getsockname()[1]) as waits:
            waits.need_end(1, "another program has 127.0.0.1:.*says nothing", within_s=15)
    limited = int(read("/proc/sys/net/ipv4/ip_unprivileged_port_start")) > 977
    if limited and (os.getuid() != 0 or shutil.which("setpriv")):
        with launcher(977, ["setpriv", "--bounding-set=-net_bind_service"] if os.getuid() == 0 else []) as refused:
            refused.need_end(1, "cannot listen on 127.0.0.1:977: Permission denied", within_s=5)


def check_secret_file(bench):
    path = os.path.join(bench.new_folder(), "secret")
    with open(path, "w") as file:
        file.write("from a file, long enough\n")
    os.chmod(path, 0o600)
    with Nodes(bench, [SHOW + "[ -z \"${SHERD_RDZV_SECRET-}\" ]"] * 2, ["--rdzv-secret-file", path]) as nodes:
        nodes.need_ends(0)


def check_namespaces(bench):
    """Two nodes in two network namespaces, over IPv4 and IPv6."""
    names = [f"sherd-{os.getpid()}-{i}" for i in range(2)]
    wires = [f"sh{os.getpid() % 100000}{i}" for i in "ab"]
    if not shutil.which("ip") or subprocess.run(["ip", "netns", "add", names[0]], capture_output=True).returncode:
        print("  note: network namespaces cannot be made here", flush=True)
        return
    try:
        commands = [f"ip netns add {names[1]}", f"ip link add {wires[0]} netns {names[0]} type veth peer name {wires[1]} netns {names[1]}"]
        for i in range(2):
            commands += [f"ip -n {names[i]} link set lo up", f"ip -n {names[i]} link set {wires[i]} up", f"ip -n {names[i]} addr add 10.93.7.{i + 1}/24 dev {wires[i]}",
                         f"ip -n {names[i]} -6 addr add fd93::{i + 1}/64 dev {wires[i]} nodad"]
        for command in commands:
            if done := subprocess.run(command.split(), capture_output=True).returncode:
                print(f"  note: '{command}' failed with {done}", flush=True)
                return
        prefixes = [("ip", "netns", "exec", name) for name in names]
        for host, family, master in (("10.93.7.1", socket.AF_INET, "10.93.7.1"), ("[fd93::1]", socket.AF_INET6, "fd93::1")):
            with Nodes(bench, [SHOW] * 2, host=host, family=family, numbered=False, prefixes=prefixes) as nodes:
                nodes.need_ends(0)
                need_places(nodes, [2, 2], master)
        with Nodes(bench, ["echo up >$DIR/up$RANK; sleep 60"] * 2, host="10.93.7.1", ranks=1, prefixes=prefixes) as nodes:
            wait_for(nodes.folder, "up0", "up1")
            subprocess.run(f"ip -n {names[1]} link set {wires[1]} down".split(), check=True)  # the cable is pulled
            began = time.monotonic()
            nodes.need_ends(1, within_s=20)
            print(f"  wire cut: over after {time.monotonic() - began:.1f} s", flush=True)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


TORCH = """import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(16, 8, generator=torch.Generator().manual_seed(100 * step + rank))).pow(2).mean().backward()
    optimizer.step()
    if step == 2 and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and "FAIL_ONCE" in os.environ:
        sys.exit(7)
if rank == 0:
    open(os.environ["DIR"] + "/sum", "w").write(repr(sum(p.double().sum().item() for p in model.parameters())))
dist.destroy_process_group()
"""


def check_torch(bench):
    """A script of PyTorch gets the same numbers as under torchrun: on one node, on two, and after a restart."""
    if subprocess.run(["python3", "-c", "import torch"], capture_output=True).returncode:
        print("  note: there is no PyTorch here", flush=True)
        return
    script = os.path.join(bench.new_folder(), "ddp.py")
    with open(script, "w") as file:
        file.write(TORCH)
    folder = bench.new_folder()
    done = subprocess.run(["python3", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", script], capture_output=True,
                          env=os.environ | {"DIR": folder})
    need(done.returncode == 0, f"torchrun itself fails: {done.stderr.decode()[-1000:]}")
    expected = text(folder, "sum")
    run = f"exec {bench.sherd} run"  # in the launcher's shell, so that DIR and all else is as in other checks
    for how in (f"{run} -n 4 {script}", f"FAIL_ONCE=1 {run} -n 4 --max-restarts 1 --restart-delay 0 {script}"):
        folder = bench.new_folder()
        with Launcher(bench, folder, [], how) as launcher:
            launcher.need_end(0, within_s=120)
        need(text(folder, "sum") == expected, f"{text(folder, 'sum')}, not {expected}")
    with Nodes(bench, [f"exec python3 {script}"] * 2) as nodes:
        nodes.need_ends(0, within_s=120)
        need(text(nodes.folder, "sum") == expected, f"two nodes: {text(nodes.folder, 'sum')}, not {expected}")


CHECKS = {name.removeprefix("check_").replace("_", "-"): check for name, check in list(globals().items()) if name.startswith("check_")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sherd")
    parser.add_argument("--only", choices=CHECKS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sherd-launch-") as folder:
        return 1 if run_checks(CHECKS, arguments.only, Bench(arguments, folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
