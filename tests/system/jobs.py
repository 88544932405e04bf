"""Jobs as real processes, for the system tests: started, found in /proc, signalled, and looked for afterwards.

Every job carries a mark in its environment, which all its processes inherit: by it a test finds its own processes and
no others, and signals are sent through descriptors of processes, so that no number that was used again is ever hit.
"""
import os
import random
import re
import resource
import signal
import subprocess
import tempfile
import time

# What a shell without job control, or nohup, has ignored for its background would stay ignored in the jobs.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MARK = "SHERD_SYSTEM_TEST"
DISK = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None  # where TMPDIR may be memory

JOB = """name: system
model: {{family: gpt2, vocab_size: 256, context: 16, d_model: 32, n_layer: 3, n_head: 2}}
data: {{train: {folder}/train.txt, validation: {folder}/validation.txt, format: text}}
train: {{steps: 1000000, global_batch: 8, micro_batch: 2}}
optimizer: {{lr: 1.0e-3, schedule: constant}}
checkpoint: {{every: 0}}
run: {{threads: 1}}
"""


class Failure(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Failure(text)


def run_checks(checks, only, *context):
    """Runs the checks, functions by their names, or the one that is wanted; says how each went. How many failed."""
    failed = 0
    for name, check in checks.items():
        if only not in (None, name):
            continue
        began = time.monotonic()
        try:
            check(*context)
            print(f"{name}: held, {time.monotonic() - began:.1f} s", flush=True)
        except Failure as failure:
            failed += 1
            print(f"{name}: FAILED: {failure}", flush=True)
    return failed


def write_files(folder, seed=1):
    """A job and random data for it; returns the job's path."""
    source = random.Random(seed)
    for name, count in (("train.txt", 20000), ("validation.txt", 40000)):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(source.randbytes(count))
    path = os.path.join(folder, "job.yaml")
    with open(path, "w") as file:
        file.write(JOB.format(folder=folder))
    return path


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_alive(pid):
    state = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return bool(state) and state[0] not in (b"Z", b"X")


def shared_memory(pid):
    """The memfds and files in /dev/shm that a process has mapped: {(device, inode): name}."""
    lines = (line.split(None, 5) for line in read(f"/proc/{pid}/maps").decode(errors="replace").splitlines())
    return {(part[3], part[4]): part[5] for part in lines if len(part) == 6 and part[5].startswith(("/memfd:", "/dev/shm/"))}


class Job:
    """`sherd train` with settings, in a run folder of its own unless one is given, by way of the command `prefix`."""

    def __init__(self, sherd, job, ranks, settings=(), run_dir=None, address_bytes=resource.RLIM_INFINITY, file_bytes=resource.RLIM_INFINITY,
                 prefix=(), environment=(), options=()):
        self.ranks = ranks
        self.run_dir = run_dir or tempfile.mkdtemp(dir=os.path.dirname(job))
        self.mark = f"{MARK}={os.path.basename(self.run_dir)}-{random.getrandbits(64):016x}"
        environment = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES and k != MARK} | dict(environment)
        environment[MARK] = self.mark.split("=", 1)[1]
        for name in ("ASAN_OPTIONS", "TSAN_OPTIONS"):  # a crash is to be a crash in these builds too
            environment[name] = environment.get(name, "") + ":handle_segv=0"
        command = [*prefix, sherd, "train", job, "-n", str(ranks), *options, "--set", f"run.dir={self.run_dir}"]
        for setting in settings:
            command += ["--set", setting]
        self.errors = tempfile.TemporaryFile()
        self.output = tempfile.TemporaryFile()

        def limit():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no cores of ranks that are made to crash
            if address_bytes != resource.RLIM_INFINITY:
                resource.setrlimit(resource.RLIMIT_AS, (address_bytes, address_bytes))
            if file_bytes != resource.RLIM_INFINITY:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

        self.launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.errors, env=environment,
                                         preexec_fn=limit)
        self.memory = {}
        self.ports = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.own_processes():
            self.signal(pid, signal.SIGKILL)
        self.launcher.wait()
        self.errors.close()
        self.output.close()

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def rows(self):
        return read(os.path.join(self.run_dir, "metrics.jsonl")).decode()

    def is_own(self, pid):
        return self.mark.encode() in read(f"/proc/{pid}/environ").split(b"\0")

    def own_processes(self):
        return [pid for pid in processes() if is_alive(pid) and self.is_own(pid)]

    def rank_pids(self):
        """{rank: pid} of the ranks that run their program; also remembers what they share."""
        found = {}
        for pid in read(f"/proc/{self.launcher.pid}/task/{self.launcher.pid}/children").split():
            variables = dict(e.split(b"=", 1) for e in read(f"/proc/{int(pid)}/environ").split(b"\0") if b"=" in e)
            if b"RANK" in variables and variables.get(MARK.encode()) == self.mark.split("=", 1)[1].encode():
                found[int(variables[b"RANK"])] = int(pid)
                self.ports.add(variables[b"MASTER_PORT"].decode())
                self.memory.update(shared_memory(int(pid)))
        return found

    def wait_for(self, condition, what, limit_s=60):
        deadline = time.monotonic() + limit_s
        while not condition():
            need(self.launcher.poll() is None, f"the job ended before {what}: {self.said()}")
            need(time.monotonic() < deadline, f"{limit_s} s without {what}: {self.said()}")
            time.sleep(0.002)

    def wait_for_rank(self, rank):
        self.wait_for(lambda: rank in self.rank_pids(), f"rank {rank} was there")
        return self.rank_pids()[rank]

    def wait_until_handled(self, number):
        """Until the program that was started has come so far that the signal no longer ends it just so."""
        def handled():
            masks = dict(line.split(":\t") for line in read(f"/proc/{self.launcher.pid}/status").decode().splitlines() if line.startswith("Sig"))
            has = {name: int(masks.get(name, "0"), 16) for name in ("SigCgt", "SigBlk")}
            if has["SigBlk"] >> (signal.SIGPIPE - 1) & 1:
                return False  # a library starts a thread, and holds all signals for a moment
            return (has["SigCgt"] | has["SigBlk"]) >> (number - 1) & 1
        self.wait_for(handled, f"signal {int(number)} was handled")

    def wait_for_rows(self, count=1):
        self.wait_for(lambda: self.rows().count("\n") >= count, f"row {count} of metrics.jsonl")
        self.rank_pids()

    def signal(self, pid, number):
        """Sends a signal to a process of this job; one that is gone, or somebody else's, is left alone."""
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            if not self.is_own(pid):
                return False
            signal.pidfd_send_signal(handle, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)

    def wait(self, limit_s=5):
        try:
            return self.launcher.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"not over after {limit_s} s; so far: {self.said()}") from None

    def leftovers(self):
        """What is still there of the job, as texts."""
        left = [f"process {pid} ({read(f'/proc/{pid}/comm').decode().strip()})" for pid in self.own_processes()]
        for pid in processes():
            both = {name for key, name in shared_memory(pid).items() if key in self.memory}
            if both:
                left.append(f"shared memory {both} in process {pid}")
        sockets = read("/proc/net/unix").decode(errors="replace")
        left += [f"socket {name}" for port in self.ports for name in re.findall(rf"@sherd-\S*:{port}-\S*", sockets)]
        left += [name for name in self.memory.values() if name.startswith("/dev/shm/") and os.path.exists(name)]
        return left

    def need_nothing_left(self, until):
        """Until `until` what was just killed may still be going."""
        while left := self.leftovers():
            need(time.monotonic() < until, f"left behind: {', '.join(left)}")
            time.sleep(0.01)
