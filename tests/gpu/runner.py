"""Runs the commands of tests/gpu/run: each with a limit, in a process group of its own, and with its output in one log."""
import glob
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time

MOST_LOGGED = 1 << 20  # bytes of one command's output


class Failed(Exception):
    """What was to hold does not."""


class LeftOut(Exception):
    """What cannot be tried here, and why."""


class Runner:
    def __init__(self, top, programs, work, log, deadline, rehearsing):
        self.top, self.programs, self.work, self.log = top, programs, work, log
        self.deadline, self.rehearsing = deadline, rehearsing
        self.step_deadline = deadline
        self.facts, self.known = {}, {}  # of this step; of all steps, for later ones
        self.started = 0
        folders = [os.path.join(os.path.dirname(programs), "lib")] + self.library_folders()
        folders += [folder for folder in [os.environ.get("LD_LIBRARY_PATH")] if folder]
        self.library_path = ":".join(folders)  # for our programs only: others of this machine have their own libraries

    @staticmethod
    def library_folders():
        """Where cuBLASLt and NCCL may lie besides the system's folders: the toolkit's, and those of Python's packages."""
        found = []
        for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
            found += [f"{home}/{name}" for name in ("lib64", "lib") if home]
        for site in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
            found += sorted(glob.glob(f"{site}/nvidia/*/lib"))
        return [folder for folder in found if os.path.isdir(folder)]

    # --- steps ---------------------------------------------------------------------------------------------------------

    def begin_step(self, name, limit):
        self.facts = {}
        now = time.monotonic()
        self.step_deadline = min(now + limit, self.deadline)
        self.note(f"\n===== {name}, at most {self.step_deadline - now:.0f} s")
        return self.step_deadline - now

    def left(self):
        return self.step_deadline - time.monotonic()

    def fact(self, name, value):
        """A number or text for the table."""
        self.facts[name] = self.known[name] = value

    def take_facts(self):
        return self.facts

    def note(self, text):
        self.log.write(text + "\n")
        self.log.flush()

    # --- commands ------------------------------------------------------------------------------------------------------

    def program(self, name):
        path = os.path.join(self.programs, name)
        if not os.path.exists(path):
            raise LeftOut(f"there is no {name} in {self.programs}")
        return path

    def tool(self, name):
        for folder in os.environ["PATH"].split(":") + ["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"]:
            if os.access(os.path.join(folder, name), os.X_OK):
                return os.path.join(folder, name)
        raise LeftOut(f"there is no {name} here")

    def start(self, command, **variables):
        self.note("$ " + " ".join([f"{key}={value}" for key, value in variables.items()] + command))
        if command[0].startswith(self.programs + "/"):
            variables["LD_LIBRARY_PATH"] = self.library_path
        self.started += 1
        path = os.path.join(self.work, f"output-{self.started}")
        with open(path, "wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.work,
                                       env={**os.environ, **variables}, start_new_session=True)
        process.output_path = path
        return process

    def output(self, process):
        with open(process.output_path, errors="replace") as file:
            return file.read()

    def end(self, process):
        """Kills what is left of it, and gives its output, which goes into the log."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        text = self.output(process)
        self.note(text if len(text) <= MOST_LOGGED else text[:MOST_LOGGED // 2] + "\n[…]\n" + text[-MOST_LOGGED // 2:])
        return text

    def run(self, command, limit=None, expect=(0,), **variables):
        """The output. Fails: Failed, when it ends otherwise than expected, or not in time. expect None: however it ends."""
        name = os.path.basename(command[1] if command[0] == sys.executable else command[0])
        seconds = min(limit or self.left(), self.left())
        process = self.start(command, **variables)
        try:
            code = process.wait(max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            self.end(process)
            raise Failed(f"{name} ran for more than {seconds:.0f} s")
        text = self.end(process)
        if expect is not None and code not in expect:
            last = [line for line in text.splitlines() if line.strip()][-3:]
            raise Failed(f"{name} ended with {code}: {' / '.join(last)}")
        return text

    def wrapper(self, name):
        """A program that finds its libraries by itself, for scripts and tools that start it."""
        program, path = self.program(name), os.path.join(self.work, name)
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\nLD_LIBRARY_PATH='{self.library_path}' exec '{program}' \"$@\"\n")
        os.chmod(path, 0o755)
        return path

    def python(self, script, *arguments):
        return [sys.executable, os.path.join(self.top, script), *arguments]

    def folder(self, name):
        path = os.path.join(self.work, name)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        return path
