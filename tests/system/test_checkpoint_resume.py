#!/usr/bin/env python3
"""What a user may do with a folder of checkpoints: share it, go back in it, keep things in it, raise train.steps.

usage: test_checkpoint_resume.py SHERD [--only NAME]

Each check is one story with the program itself; exit codes and what is on disk afterwards are checked, and that whatever
is not the job's stays where it is.
"""
import argparse
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time

from checkpoints import LIMIT_S, complete, files_of, need_whole, others, path_of, weights
from jobs import Job, need, read, run_checks, write_files

SMALL = ["train.global_batch=12", "model.n_layer=1"]


class Bench:
    def __init__(self, sherd, folder):
        self.sherd, self.folder = sherd, folder
        self.job = write_files(folder)

    def start(self, settings, run_dir=None, ranks=2):
        return Job(self.sherd, self.job, ranks, [*SMALL, *settings], run_dir)

    def run(self, settings, run_dir=None, ranks=2, code=0, says=()):
        """A job that must end with an exit code and say some things; returns its run folder."""
        with self.start(settings, run_dir, ranks) as job:
            got, said = job.wait(LIMIT_S), job.said()
            need(got == code, f"{settings}: exit code {got}, not {code}: {said}")
            for text in says:
                need(text in said, f"{settings}: does not say '{text}': {said}")
            self.said = said
            return job.run_dir


def state_of(folder):
    """All names in a folder and what files hold: what must be as it was. Logs go on."""
    paths = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names
             if name != ".sherd-lock" and "/attempt_" not in where]
    return {path: read(path) for path in paths}


def set_aside(folder):
    return sorted(name.split(".")[0] for name in others(folder) if ".aside-" in name)


def check_two_jobs(bench):
    """The second job on a folder is refused; a lock does not outlive its holder."""
    folder = os.path.join(bench.folder, "shared")
    keys = [f"checkpoint.dir={folder}", "checkpoint.every=5", "checkpoint.keep=2"]
    with bench.start(["train.steps=1000000", *keys]) as job:
        job.wait_for(lambda: os.path.isdir(folder) and complete(folder), "a checkpoint")
        second = bench.run(["train.steps=10", *keys], code=1, says=[folder, "another job"])
        need(not read(f"{second}/metrics.jsonl"), "the second job has trained")
        job.signal(job.launcher.pid, signal.SIGKILL)
        job.wait()
        job.need_nothing_left(time.monotonic() + 5)
        newest = complete(folder)[-1]
        bench.run([f"train.steps={newest + 3}", *keys], job.run_dir, says=[f"step-{newest:08d}: {newest} of {newest + 3} steps are done"])


def check_finished(bench):
    """A finished job that is started again does nothing; with more steps it goes on as if it had been one run."""
    run_dir = bench.run(["train.steps=4", "checkpoint.every=0", "optimizer.schedule=constant"])
    before = state_of(run_dir)
    bench.run(["train.steps=4", "optimizer.schedule=constant"], run_dir, ranks=3)
    need(state_of(run_dir) == before, f"a finished job has changed something: {sorted(state_of(run_dir))}: {bench.said}")
    need("nothing to do" in bench.said, f"does not say that nothing is to do: {bench.said}")
    bench.run(["train.steps=7", "optimizer.schedule=constant"], run_dir, ranks=1)
    whole = bench.run(["train.steps=7", "optimizer.schedule=constant"])
    need(weights(bench.sherd, f"{run_dir}/checkpoints/step-00000007") == weights(bench.sherd, f"{whole}/checkpoints/step-00000007"), "other weights")


def check_paths(bench):
    """A path that is no checkpoint is an error and never a fresh start."""
    for path, code in ((f"{bench.folder}/nothing", (2, 3)), (bench.job, (2, 3)), (f"{bench.folder}/train.txt/step-00000001", (2, 3))):
        with bench.start(["train.steps=2", f"checkpoint.resume={path}"]) as job:
            got, said = job.wait(LIMIT_S), job.said()
            need(got in code and path in said and not job.rows(), f"resume: {path}: exit code {got}: {said}")


def check_changes(bench):
    """Other data or another seed is refused unless the job says that it means it; other things may change."""
    run_dir = bench.run(["train.steps=3", "checkpoint.every=0"])
    shutil.copy(f"{bench.folder}/train.txt", f"{bench.folder}/other.txt")
    with open(f"{bench.folder}/other.txt", "r+b") as file:
        file.write(b"other")
    for key, setting in (("data", f"data.train={bench.folder}/other.txt"), ("seed", "train.seed=7")):
        before = state_of(run_dir)
        bench.run(["train.steps=5", setting], run_dir, code=3, says=["resume_despite"])
        need(state_of(run_dir) == before, f"refused because of its {key}, but something has changed")
        copy = shutil.copytree(run_dir, tempfile.mkdtemp(dir=bench.folder), dirs_exist_ok=True)
        bench.run(["train.steps=5", setting, f"checkpoint.resume_despite=[{key}]"], copy, says=["3 of 5 steps are done"])
    bench.run(["train.steps=5", "optimizer.lr=1.0e-4", "train.micro_batch=1", "train.precision=bf16"], run_dir, ranks=3, says=["3 of 5 steps are done"])


def check_back(bench):
    """Back to an older checkpoint: later ones are set aside when the new branch has saved, not before."""
    run_dir = bench.run(["train.steps=8", "checkpoint.every=2", "checkpoint.keep=0"])
    folder = f"{run_dir}/checkpoints"
    keys = [f"checkpoint.resume={path_of(folder, 4)}", "checkpoint.keep=0"]
    with bench.start([*keys, "train.steps=1000000", "checkpoint.every=0"], run_dir) as job:
        job.wait_for_rows(20)
        need(complete(folder) == [2, 4, 6, 8], f"before the new branch has saved: {complete(folder)}: {job.said()}")
        job.signal(job.launcher.pid, signal.SIGKILL)
        job.wait()
        job.need_nothing_left(time.monotonic() + 5)
    bench.run([*keys, "train.steps=7", "checkpoint.every=3"], run_dir)
    need(complete(folder) == [2, 4, 6, 7], f"of the new branch: {complete(folder)}, aside {set_aside(folder)}: {bench.said}")
    need(set_aside(folder) in (["step-00000006", "step-00000008"], ["step-00000008"]), f"set aside: {others(folder)}: {bench.said}")
    for step in complete(folder):
        need_whole(bench.sherd, path_of(folder, step))


def check_never(bench):
    """resume: never in a folder with checkpoints begins at step 0, and loses none of them before it has saved."""
    run_dir = bench.run(["train.steps=4", "checkpoint.every=2"])
    folder = f"{run_dir}/checkpoints"
    old = weights(bench.sherd, path_of(folder, 4))
    bench.run(["train.steps=3", "checkpoint.every=0", "checkpoint.resume=never", "train.seed=9"], run_dir)
    need(complete(folder) == [3], f"the new branch has {complete(folder)}: {bench.said}")
    kept = [name for name in others(folder) if name.startswith("step-00000004.aside-")]
    need(len(kept) == 1 and set(files_of(os.path.join(folder, kept[0]))) >= {"manifest.json"}, f"the old ones are lost: {others(folder)}: {bench.said}")
    with tempfile.TemporaryDirectory(dir=bench.folder) as back:
        shutil.copytree(os.path.join(folder, kept[0]), path_of(back, 4))
        need(weights(bench.sherd, path_of(back, 4)) == old, "what was set aside has changed")


def check_strangers(bench):
    """What is not the job's own stays; what a dead job left goes; what a living one is writing stays."""
    run_dir = tempfile.mkdtemp(dir=bench.folder)
    folder = f"{run_dir}/checkpoints"
    strangers = ["notes", "step-12", "step-00000001.txt", "step-00000001.aside-0123456789abcdef", "step-00000002.partial", "stepping", "latest"]
    for name in strangers:
        os.makedirs(os.path.join(folder, name))
    dead, alive = (os.path.join(folder, f"step-00000003.partial-{digit * 16}") for digit in "0f")
    for name in (dead, alive):
        os.makedirs(name)
        with open(os.path.join(name, "rank-00000.bin"), "wb") as file:
            file.write(bytes(8192))
    with open(os.path.join(alive, "rank-00000.bin"), "rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        bench.run(["train.steps=6", "checkpoint.every=1", "checkpoint.keep=2", "checkpoint.keep_every=3"], run_dir)
        need(complete(folder) == [3, 5, 6], f"keep: 2, keep_every: 3, but {complete(folder)}: {bench.said}")
        need(os.path.isdir(alive), f"removed what is being written: {bench.said}")
    missing = [name for name in strangers if not os.path.isdir(os.path.join(folder, name))]
    need(not missing, f"removed what is not its own: {missing}: {bench.said}")
    need(not os.path.exists(dead), f"a dead job's leftover is still there: {bench.said}")
    bench.run(["train.steps=7", "checkpoint.keep=2", "checkpoint.keep_every=3"], run_dir)
    need(not os.path.exists(alive), f"the job that wrote it has died, and its leftover is still there: {bench.said}")


def check_clock(bench):
    """checkpoint.every_minutes saves by the clock."""
    with bench.start(["train.steps=1000000", "checkpoint.every_minutes=0.002"]) as job:
        folder = f"{job.run_dir}/checkpoints"
        job.wait_for(lambda: os.path.isdir(folder) and len(complete(folder)) >= 3, "three checkpoints by the clock", 20)


def check_busy(bench):
    """if_busy: skip leaves out what is due while a save is under way, with a warning; the last step is saved all the same."""
    large = ["model.d_model=128", "model.n_layer=2", "train.global_batch=2", "train.micro_batch=1", "model.context=4", "checkpoint.compression=19"]
    run_dir = bench.run([*large, "train.steps=12", "checkpoint.every=1", "checkpoint.if_busy=skip", "checkpoint.keep=0"])
    steps = complete(f"{run_dir}/checkpoints")
    need(steps[-1] == 12 and len(steps) < 12 and bench.said.count("is not saved") >= 12 - len(steps), f"saved {steps}: {bench.said}")
    run_dir = bench.run([*large, "train.steps=3", "checkpoint.every=1", "checkpoint.keep=0"])
    need(complete(f"{run_dir}/checkpoints") == [1, 2, 3], f"if_busy: wait, but {complete(f'{run_dir}/checkpoints')}: {bench.said}")


CHECKS = {"two-jobs": check_two_jobs, "finished": check_finished, "paths": check_paths, "changes": check_changes, "back": check_back,
          "never": check_never, "strangers": check_strangers, "clock": check_clock, "busy": check_busy}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd", type=os.path.abspath)
    parser.add_argument("--only", choices=CHECKS, help="one check")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sherd-resume-") as folder:
        failed = run_checks(CHECKS, arguments.only, Bench(arguments.sherd, folder))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
