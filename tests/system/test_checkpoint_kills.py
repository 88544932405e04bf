#!/usr/bin/env python3
"""Jobs that are killed or told to stop around their saves: no checkpoint is lost, and the result is that of a job left alone.

usage: test_checkpoint_kills.py SHERD [--kills N] [--calls N] [--signals N] [--fail-io PATH] [--seed N] [--only NAME] [--table]

kills: kill -9 of one rank, of all ranks and the launcher, or of the launcher alone, --kills times, at random moments and
in the middle of saves, of jobs on 1 to 3 ranks at stages 0 and 3 that save every 1 to 3 steps and keep one checkpoint.
Once one was committed, a whole one is there after every kill, none older than before, with the weights that the
undisturbed run has after so many steps.  Each next start, mostly with other ranks or another stage, goes on from it.  At the end
metrics.jsonl and the exported weights are those of the undisturbed run, bit for bit, and nothing else is left.

calls: the same with a rank that is killed just before one of its system calls on files of checkpoints: with each of them in turn
when --calls is 1, with every N-th otherwise.  Needs fail_io.c, compiled, at --fail-io.

branch: the same of a job that went back to an older checkpoint: no checkpoint of the branch that it left is resumed from once it has saved.

signals: TERM, INT, HUP and USR1 to the launcher, to one rank or to all at once, once or twice in a row, --signals times, while jobs
start, step, evaluate or save.  After all but USR1 the newest checkpoint is that of the step it stopped at, and the exit
code 128 + the signal's number; after USR1 the job has saved and goes on.

The defaults take seconds; `--kills 200 --calls 1 --signals 50` is for a run by hand.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time

from checkpoints import complete, failing, need_whole, others, path_of, weights
from jobs import DISK, Failure, Job, need, run_checks, write_files

STEPS = 40
RANKS, STAGES = (1, 2, 3), (0, 3)
BASE = ["train.global_batch=12", "model.dropout=0.1", "optimizer.schedule=cosine", "train.clip=0.5"]
# A job whose state is some 20 MB, so that a save is many blocks and takes a while.
LARGE = ["model.d_model=256", "model.n_layer=2", "train.global_batch=6", "train.micro_batch=1"]
KILLS_A_LIFE = 6
LIMIT_S = 60
GONE_S = 5
RESUMED = re.compile(r"step-(\d{8}): (\d+) of (\d+) steps are done")


class Bench:
    """What all checks need, and what they have found."""

    def __init__(self, arguments, folder):
        self.sherd = os.path.abspath(arguments.sherd)
        self.job = write_files(folder)
        self.random = random.Random(arguments.seed)
        self.counts = {}
        self.expected = {}

    def start(self, ranks, stage, settings=(), run_dir=None, environment=()):
        return Job(self.sherd, self.job, ranks, [f"shard.stage={stage}", *settings], run_dir, environment=environment)

    def count(self, *key):
        self.counts[key] = self.counts.get(key, 0) + 1

    def undisturbed(self, settings, steps):
        """Rows of metrics and, by step, the weights of a run that nobody disturbs."""
        key = (tuple(settings), steps)
        if key not in self.expected:
            with self.start(2, 3, [*settings, f"train.steps={steps}", "checkpoint.every=1", "checkpoint.keep=0"]) as job:
                code = job.wait(4 * LIMIT_S)
                need(code == 0, f"exit code {code}: {job.said()}")
                folder = f"{job.run_dir}/checkpoints"
                need(complete(folder) == list(range(1, steps + 1)), f"of {steps} steps saved: {complete(folder)}")
                self.expected[key] = numbers(job), {step: weights(self.sherd, path_of(folder, step)) for step in complete(folder)}
        return self.expected[key]


def numbers(job):
    """All that metrics.jsonl says of the training itself."""
    return [(row["step"], row["loss"], row["grad_norm"], row["lr"], row["tokens_seen"]) for row in map(json.loads, job.rows().splitlines())]


def wait_while(job, seconds, condition=lambda: False):
    """Until the time is over, the condition holds or the job has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and job.launcher.poll() is None and not condition():
        time.sleep(0.0005)


def is_saving(folder):
    try:
        return any(".partial" in name for name in os.listdir(folder))
    except FileNotFoundError:
        return False


def strike(bench, job, folder):
    """Kills at some moment; returns what was killed, or None when the job had ended."""
    draw = bench.random
    moment = draw.choice(("anywhen", "save", "save"))
    wait_while(job, draw.uniform(0, 0.5))
    if moment == "save":
        wait_while(job, 5, lambda: is_saving(folder))
        time.sleep(draw.choice((0, draw.uniform(0, 0.003), draw.uniform(0, 0.03))))
    ranks = job.rank_pids()
    victim = draw.choice(("rank", "all", "launcher"))
    if victim == "rank" and ranks:
        victims = [draw.choice(sorted(ranks.values()))]
    else:
        victims = [job.launcher.pid] + (list(ranks.values()) if victim == "all" else [])
    if job.launcher.poll() is not None or not [pid for pid in victims if job.signal(pid, signal.SIGKILL)]:
        return None
    bench.count("kill", victim, moment)
    return victim


def is_over(found, before, steps):
    """Whether the last checkpoint stands alone; or beside what a kill after its commit kept from being let go, where it was all there."""
    return found == [steps] or (found == before and found[-1:] == [steps])


def need_resumed(said, steps):
    """A job that found checkpoints when it started goes on from the newest one, if it came to say so."""
    for found in RESUMED.findall(said):
        need(steps and int(found[0]) == int(found[1]) == steps[-1], f"resumed from {found[0]} when there were {steps}: {said}")


def live(bench, settings, steps, kills):
    """One job from its first start to its last step, killed on the way; returns how often."""
    rows, digests = bench.undisturbed(settings, steps)
    run_dir = tempfile.mkdtemp(dir=os.path.dirname(bench.job))
    folder, done, history = f"{run_dir}/checkpoints", 0, []
    while True:
        ranks, stage = bench.random.choice(RANKS), bench.random.choice(STAGES)
        every, asynchronous = bench.random.randint(1, 3), bench.random.random() < 0.8
        before = complete(folder)
        history.append(f"{ranks} ranks, stage {stage}, every {every}, async {asynchronous}, from {before[-1:]}")
        keys = [f"train.steps={steps}", f"checkpoint.every={every}", "checkpoint.keep=1", f"checkpoint.async={str(asynchronous).lower()}"]
        try:
            with bench.start(ranks, stage, [*settings, *keys], run_dir) as job:
                victim = strike(bench, job, folder) if done < kills else None
                code, said = job.wait(LIMIT_S), job.said()
                job.need_nothing_left(time.monotonic() + GONE_S)
            need_resumed(said, before)
            after = complete(folder)
            need(not before or after, f"{before} were complete, now none is: {said}")
            need(after[-1:] >= before[-1:], f"the newest was {before}, now {after}: {said}")
            for step in after:
                need_whole(bench.sherd, path_of(folder, step), digests[step])
            if code == 0:
                need(is_over(after, before, steps), f"not only the last of {steps} steps: {after}: {said}")
                left = [name for name in others(folder) if name != ".sherd-lock"]
                need(not left, f"left behind: {left}: {said}")
                need(numbers(job) == rows, f"other numbers than those of the undisturbed run: {said}")
                return done
            need(victim, f"not killed, but exit code {code}: {said}")
            history[-1] += f", killed: {victim}"
            done += 1
        except Failure as failure:
            raise Failure(f"{failure}\nstarts so far:\n" + "\n".join(history)) from None


def check_kills(bench, arguments):
    left, life = arguments.kills, 0
    while left > 0:
        life += 1
        if life % 4 == 0:
            left -= live(bench, [*BASE, *LARGE], 12, min(left, KILLS_A_LIFE))
        else:
            left -= live(bench, BASE, STEPS, min(left, KILLS_A_LIFE))


def check_calls(bench, arguments):
    """Kills before one system call after another, until a job comes to its end without having met its kill."""
    if not arguments.fail_io:
        print("calls: skipped, without --fail-io")
        return
    settings, steps = ["model.n_layer=1", "train.global_batch=12"], 4
    rows, digests = bench.undisturbed(settings, steps)
    for ranks, stage, rank, asynchronous in ((2, 3, 0, "true"), (2, 3, 1, "true"), (1, 0, 0, "false")):
        call, keys = bench.random.randint(1, arguments.calls), [f"train.steps={steps}", "checkpoint.every=1", "checkpoint.keep=1"]
        while True:
            run_dir = tempfile.mkdtemp(dir=os.path.dirname(bench.job))
            folder, where = f"{run_dir}/checkpoints", f"rank {rank} of {ranks}, killed before call {call}"
            before = []
            with bench.start(ranks, stage, [*settings, *keys, f"checkpoint.async={asynchronous}"], run_dir,
                             failing(arguments.fail_io, "kill", call, rank, folder)) as job:
                while job.launcher.poll() is None:
                    before = complete(folder) or before
                    time.sleep(0.001)
                code, said = job.wait(LIMIT_S), job.said()
                job.need_nothing_left(time.monotonic() + GONE_S)
            if code == 0:
                break
            need(code == 4 and f"rank {rank} of {ranks}" in said, f"{where}: exit code {code}: {said}")
            need(not before or complete(folder)[-1:] >= before[-1:], f"{where}: {before} were complete, now {complete(folder)}")
            for step in complete(folder):
                need_whole(bench.sherd, path_of(folder, step), digests[step])
            found = complete(folder)
            with bench.start(bench.random.choice(RANKS), bench.random.choice(STAGES), [*settings, *keys], run_dir) as again:
                code, said = again.wait(LIMIT_S), again.said()
                need(code == 0, f"{where}; started again: exit code {code}: {said}")
                need_resumed(said, found)
                need(is_over(complete(folder), found, steps) and numbers(again) == rows, f"{where}; other numbers, or {complete(folder)}: {said}")
                need(weights(bench.sherd, path_of(folder, steps)) == digests[steps], f"{where}; other weights: {said}")
                left = [name for name in others(folder) if name != ".sherd-lock"]
                need(not left, f"{where}; left behind: {left}: {said}")
            bench.count("kill", f"rank {rank} of {ranks}", "before a system call")
            shutil.rmtree(run_dir)
            call += arguments.calls


def check_branch(bench, arguments):
    """Kills before one system call after another of a job that went back to step 4 of 8, saves every step and has another
    learning rate: once it has saved, checkpoints of the old branch are no more in its way."""
    if not arguments.fail_io:
        print("branch: skipped, without --fail-io")
        return
    settings = ["model.n_layer=1", "train.global_batch=12", "optimizer.schedule=constant", "checkpoint.keep=0"]
    new = [*settings, "optimizer.lr=5.0e-4", "train.steps=7", "checkpoint.every=1"]
    with bench.start(2, 3, [*settings, "train.steps=8", "checkpoint.every=2"]) as job:
        need(job.wait(LIMIT_S) == 0, f"the first branch failed: {job.said()}")
        old = job.run_dir
    digests, call = {}, 0
    while True:
        run_dir = shutil.copytree(old, tempfile.mkdtemp(dir=os.path.dirname(bench.job)), dirs_exist_ok=True)
        folder, where = f"{run_dir}/checkpoints", f"killed before call {call}"
        keys = [*new, f"checkpoint.resume={path_of(folder, 4)}"]
        with bench.start(2, 3, keys, run_dir, failing(arguments.fail_io, "kill", call, 0, folder) if call else ()) as job:
            code, said = job.wait(LIMIT_S), job.said()
            job.need_nothing_left(time.monotonic() + GONE_S)
        found = complete(folder)
        if code == 0:
            need(found == [2, 4, 5, 6, 7], f"of the new branch: {found}: {said}")
            if digests:
                break
            digests = {step: weights(bench.sherd, path_of(folder, step)) for step in found}
        else:
            # The old branch is moved aside from its oldest on: until its last is, that is the newest, as before.
            need(found in ([2, 4, 6, 8], [2, 4, 8]) or 8 not in found, f"{where}: the old branch's last is still before the new one's: {found}: {said}")
            for step in found if 8 not in found else []:
                need_whole(bench.sherd, path_of(folder, step))
                need(digests[step] == weights(bench.sherd, path_of(folder, step)), f"{where}: step {step} is another branch's: {found}: {said}")
            if 8 not in found:
                with bench.start(3, 0, new, run_dir) as again:
                    code, said = again.wait(LIMIT_S), again.said()
                    need(code == 0 and complete(folder)[-1:] == [7], f"{where}; started again: exit code {code}, {complete(folder)}: {said}")
                    need(digests[7] == weights(bench.sherd, path_of(folder, 7)), f"{where}; started again, other weights: {said}")
            bench.count("kill", "rank 0 of 2", "before a system call of a new branch")
        shutil.rmtree(run_dir)
        call += arguments.calls if call else bench.random.randint(1, arguments.calls)


PHASES = {"start": [], "steps": [], "evaluation": ["train.evaluate_every=1"], "save": ["checkpoint.every=1"]}
SIGNALS = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "SIGINT", signal.SIGUSR1: "SIGUSR1", signal.SIGHUP: "SIGHUP"}


def send(bench, job, number, target):
    ranks = list(job.rank_pids().values())
    victims = {"launcher": [job.launcher.pid], "one rank": [bench.random.choice(ranks)] if ranks else [job.launcher.pid],
               "all": [job.launcher.pid] + ranks}[target]
    for pid in victims:
        job.signal(pid, number)


def tell(bench, number, phase, target, times):
    """Sends a signal in a phase and returns nothing: all that must follow is checked here."""
    ranks, stage = bench.random.choice(RANKS), bench.random.choice(STAGES)
    settings = [*BASE, "train.steps=100000", "checkpoint.keep=2", *PHASES[phase]]
    with bench.start(ranks, stage, settings) as job:
        folder = f"{job.run_dir}/checkpoints"
        if phase == "start":
            if ranks > 1:
                job.wait_for_rank(ranks - 1)
            else:
                job.wait_until_handled(number)  # one rank is the process that was started
            time.sleep(bench.random.uniform(0, 0.08))
        else:
            job.wait_for_rows(2)
            time.sleep(bench.random.uniform(0, 0.1))
        if phase == "save":
            wait_while(job, 5, lambda: is_saving(folder))
        first = len(numbers(job)) if job.rows().endswith("\n") else 0
        send(bench, job, number, target)
        if times == 2:
            time.sleep(bench.random.choice((0, 0.001, 0.01)))
            send(bench, job, number, target)
        if number == signal.SIGUSR1:
            wait_while(job, LIMIT_S, lambda: complete(folder)[-1:] > [first])
            need(job.launcher.poll() is None, f"over after SIGUSR1: exit code {job.launcher.poll()}: {job.said()}")
            need(complete(folder)[-1:] > [first], f"at step {first} of no use: {complete(folder)}: {job.said()}")
            saved = complete(folder)[-1]
            wait_while(job, LIMIT_S, lambda: job.rows().count("\n") > saved + 5)
            need(job.launcher.poll() is None, f"over after SIGUSR1: exit code {job.launcher.poll()}: {job.said()}")
            number = signal.SIGTERM
            job.launcher.send_signal(number)
        code, said = job.wait(LIMIT_S), job.said()
        job.need_nothing_left(time.monotonic() + GONE_S)
        need(code == 128 + number, f"exit code {code}: {said}")
        need(f"stopped by signal {int(number)} ({SIGNALS[number]})" in said, f"does not say what stopped it: {said}")
        rows = numbers(job)
        need(not rows or complete(folder)[-1:] == [len(rows)], f"stopped after {len(rows)} steps, saved: {complete(folder)}: {said}")
        for step in complete(folder):
            need_whole(bench.sherd, path_of(folder, step))
        left = [name for name in (others(folder) if rows else []) if name != ".sherd-lock"]
        need(not left, f"left behind: {left}: {said}")
    more = len(rows) + 3
    with bench.start(bench.random.choice(RANKS), bench.random.choice(STAGES), [*settings, f"train.steps={more}"], job.run_dir) as again:
        code = again.wait(LIMIT_S)
        need(code == 0, f"started again: exit code {code}: {again.said()}")
        need(not rows or RESUMED.search(again.said()), f"does not say from where it goes on: {again.said()}")
        need(complete(folder)[-1] == more and [row[0] for row in numbers(again)] == list(range(more)), f"started again: {again.said()}")
        need(numbers(again)[:len(rows)] == rows, "rows before the stop have changed")


def check_signals(bench, arguments):
    phases, numbers_, targets = list(PHASES), list(SIGNALS), ("launcher", "one rank", "all")
    for i in range(arguments.signals):
        number, phase, target, times = numbers_[i % 4], phases[(i + i // 4) % 4], targets[(i + i // 3) % 3], 1 + (i + i // 12) % 2
        try:
            tell(bench, number, phase, target, times)
            bench.count(SIGNALS[number] + (" twice" if times == 2 else ""), target, phase)
        except Failure as failure:
            raise Failure(f"{SIGNALS[number]} to {target}, {times} times, in {phase}: {failure}") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sherd")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--calls", type=int, default=23, help="every which system call")
    parser.add_argument("--fail-io", type=os.path.abspath, help="fail_io.c as a shared object")
    parser.add_argument("--signals", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("kills", "calls", "branch", "signals"), help="one check")
    parser.add_argument("--table", action="store_true", help="print what was done how often")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sherd-kills-", dir=DISK) as folder:
        bench = Bench(arguments, folder)
        failed = run_checks({"kills": check_kills, "calls": check_calls, "branch": check_branch, "signals": check_signals}, arguments.only, bench, arguments)
        if arguments.table:
            print("| what | to whom | when | times |\n| --- | --- | --- | --- |")
            for key, count in sorted(bench.counts.items()):
                print(f"| {' | '.join(key)} | {count} |")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
