#!/usr/bin/env python3
"""Hold running jobs to their plans, from outside.

usage: test_memory.py --sherd build/sherd --interposer libinterpose.so [--golden tests/data/golden] [--table]

For every stage, gather mode and 1, 2, 4 and 8 ranks a tiny job is planned with `sherd plan --json` and trained with an
interposer preloaded (interpose.c) that knows nothing of plans; the same in bf16 (on 4 ranks with gradients
exchanged in bf16 too) and fp16.  Checked for every rank of every job:

  - categories and buffers of the plan add up to its allocated_bytes;
  - anonymous mappings made by sherd = the plan's PRIVATE arena, to the byte;
  - shared memory (memfd) made by the ranks = EXPORTED of each + HOST once, to the byte; beside it one control block and one flight
    recorder;
  - so that all ranks together take ranks x allocated_bytes, plus what is named below and bounded;
  - fifty more steps make not one more call of malloc or mmap each, on no rank and from no library;
  - the same of a job that goes on from the checkpoint which the first has saved: saving and loading take what is planned;
  - (without interposer, in the middle of a job) Pss_Anon + Pss_Shmem exceeds allocated_bytes by at most 40 MiB;
  - a plan that differs by one cache line, or another stage's, is found out.

Named beside the plan: objects of sherd (descriptions, programs, tables, the checkpoint's buffer), OpenBLAS's buffers,
other libraries, the control block and the flight recorder.  Exit 0 when all hold.  Standard library only.
"""
import argparse, copy, glob, json, os, subprocess, sys, tempfile, time

MIB = 1 << 20
OBJECTS_LIMIT, LIBRARIES_LIMIT, CONTROL_LIMIT, PSS_LIMIT = 4 * MIB, 1 * MIB, 1 * MIB, 40 * MIB
RECORDER_LIMIT = 280 * 1024  # of each rank
SHORT, LONG = 3, 53  # steps
MANIFEST_CALLS = 4  # texts of rank 0 with the number of a step in them may have to grow once more, or once less

JOB = """name: memory
model: {{family: gpt2, vocab_size: 257, context: 32, d_model: {width}, n_layer: 3, n_head: 3, frozen: ["wpe.*"]}}
data: {{train: {tokens}, format: llmc, shuffle: false}}
train: {{steps: {steps}, global_batch: 8, micro_batch: 1}}
optimizer: {{lr: 1.0e-3}}
checkpoint: {{every: 0, resume: never}}
run: {{dir: {dir}, threads: 1}}
"""


def configurations():
    for ranks in (1, 2, 4, 8):
        for stage in range(4):
            for gather in ("auto",) if ranks == 1 or stage == 0 else ("copy", "shared"):
                yield ranks, stage, gather, "fp32"
                if ranks in (2, 4):
                    yield ranks, stage, gather, "bf16"
    yield 1, 3, "auto", "fp16"


class Job:
    def __init__(self, args, folder, ranks, stage, gather, precision, steps, width=48, resume="never"):
        self.args, self.folder, self.ranks, self.steps = args, folder, ranks, steps
        self.path = os.path.join(folder, "job.yaml")
        with open(self.path, "w") as f:
            tokens = os.path.abspath(f"{args.golden}/gpt2-tiny/tokens.bin")
            f.write(JOB.format(tokens=tokens, steps=steps, dir=folder, width=width))
        self.options = [self.path, "-n", str(ranks)]
        self.options += ["--set", f"shard.stage={stage}", "--set", f"shard.gather={gather}"]
        reduced = "bf16" if precision == "bf16" and ranks == 4 else "fp32"
        self.options += ["--set", f"train.precision={precision}", "--set", f"shard.reduce_dtype={reduced}"]
        # What blocks keep of their activations goes with ranks and stages, so that each choice meets both.
        recompute = ("none", "unit", "attention")[(stage + ranks) % 3]
        self.options += ["--set", f"train.recompute={recompute}"]
        self.options += ["--set", f"checkpoint.resume={resume}"]
        # So does who keeps the optimizer's states: every rank its shard's, or one rank a tensor's.
        optimizer = ("adamw", "muon", "adafactor")[(stage + (gather == "shared") + ranks.bit_length()) % 3]
        self.options += ["--set", f"optimizer.name={optimizer}"]

    def plan(self):
        command = [self.args.sherd, "plan", "--json"] + self.options
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise Failure(f"plan: exit {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def command(self):
        return [self.args.sherd, "train"] + self.options

    def watch(self):
        """Trains under the interposer; what it saw, by rank."""
        out = os.path.join(self.folder, "seen")
        for path in glob.glob(out + ".*"):
            os.remove(path)
        env = dict(os.environ, LD_PRELOAD=os.path.abspath(self.args.interposer), SHERD_INTERPOSE_OUT=out)
        done = subprocess.run(self.command(), capture_output=True, text=True, timeout=120, env=env)
        if done.returncode:
            raise Failure(f"train: exit {done.returncode}: {done.stderr.strip()[-500:]}")
        with open(os.path.join(self.folder, "metrics.jsonl")) as f:
            if len(f.readlines()) != self.steps:
                raise Failure(f"train: metrics.jsonl does not have {self.steps} rows")
        seen = [json.load(open(path)) for path in glob.glob(out + ".*")]
        # With one rank the command trains in its own process, which has no RANK; with more the launcher is the one without.
        ranks = {int(s["rank"] or 0): s for s in seen if s["rank"] or self.ranks == 1}
        if sorted(ranks) != list(range(self.ranks)):
            raise Failure(f"train: reports of ranks {sorted(ranks)}, expected 0 to {self.ranks - 1}")
        for launcher in (s for s in seen if not s["rank"] and self.ranks > 1):
            ranks[0]["memfd"]["sherd-recorder"] = launcher["memfd"]["sherd-recorder"]  # of all of them
        return [ranks[r] for r in range(self.ranks)]


class Failure(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Failure(text)


def is_sherd(name):
    return name.startswith("sherd") or name.startswith("libsherd")


def total(tallies, wanted, field="peak"):
    return sum(t[field] for name, t in tallies.items() if wanted(name))


def check_sums(plan):
    for row in plan["stages"]:
        total_bytes = sum(row["categories"].values())
        need(total_bytes == row["allocated_bytes"], f"categories of stage {row['stage']} do not add up")
    chosen = plan["stages"][plan["stage"]]
    need(sum(b["charged_bytes"] for b in plan["buffers"]) == chosen["allocated_bytes"], "buffers do not add up")
    arenas = chosen["arena_bytes"]
    own_bytes = arenas["private"] + arenas["exported"] + arenas["host"] // plan["ranks"]
    need(own_bytes == chosen["allocated_bytes"], "arenas do not add up")


def check_seen(plan, seen):
    """Returns a row of the table: what all ranks were promised and took, and the rest by name, largest rank."""
    arenas, ranks = plan["stages"][plan["stage"]]["arena_bytes"], plan["ranks"]
    shared = {"sherd-exported": [], "sherd-host": [], "sherd-control": [], "sherd-recorder": []}
    rest = {"objects": 0, "blas": 0, "libraries": 0}
    taken = 0
    for r, report in enumerate(seen):
        mapped = total(report["anonymous"], is_sherd)
        need(mapped == arenas["private"], f"rank {r}: sherd mapped {mapped} bytes, the plan says {arenas['private']}")
        taken += mapped
        for name, size in report["memfd"].items():
            need(name in shared, f"rank {r}: a memfd '{name}' that nobody planned, {size} bytes")
            shared[name].append(size)
        blas = lambda name: "blas" in name
        other = lambda name: not is_sherd(name) and not blas(name)
        rest["objects"] = max(rest["objects"], total(report["malloc"], is_sherd))
        rest["blas"] = max(rest["blas"], total(report["malloc"], blas) + total(report["anonymous"], blas))
        rest["libraries"] = max(rest["libraries"], total(report["malloc"], other) + total(report["anonymous"], other))
    need(shared["sherd-exported"] == ([arenas["exported"]] * ranks if arenas["exported"] else []),
         f"exported arenas are {shared['sherd-exported']}, the plan says {arenas['exported']} for each of {ranks}")
    need(shared["sherd-host"] == ([arenas["host"]] if arenas["host"] else []),
         f"host arenas are {shared['sherd-host']}, the plan says {arenas['host']}")
    need(len(shared["sherd-control"]) == (ranks > 1), f"control blocks are {shared['sherd-control']}")
    need(len(shared["sherd-recorder"]) == 1, f"flight recorders are {shared['sherd-recorder']}")
    need(shared["sherd-recorder"][0] <= RECORDER_LIMIT * ranks, f"{shared['sherd-recorder'][0]} bytes of flight recorder")
    taken += sum(shared["sherd-exported"]) + sum(shared["sherd-host"])
    promised = ranks * plan["stages"][plan["stage"]]["allocated_bytes"]
    need(taken == promised, f"all ranks took {taken} bytes, were promised {promised}")
    rest["control"] = sum(shared["sherd-control"])
    need(rest["objects"] <= OBJECTS_LIMIT, f"{rest['objects']} bytes of objects")
    need(rest["libraries"] <= LIBRARIES_LIMIT, f"{rest['libraries']} bytes of libraries")
    need(rest["control"] <= CONTROL_LIMIT, f"{rest['control']} bytes of control block")
    return dict(promised=promised, taken=taken, **rest)


def calls(report):
    return {(kind, name): tally["calls"] for kind in ("malloc", "anonymous") for name, tally in report[kind].items()}


def check_steps(short, long):
    """Steps allocate nothing: fifty more make no more calls, but for those of rank 0 that hang on what is in the manifest."""
    for r, (few, many) in enumerate(zip(short, long)):
        few, many = calls(few), calls(many)
        for key in many:
            more = many[key] - few.get(key, 0)
            manifest = r == 0 and key[0] == "malloc" and is_sherd(key[1])
            need(abs(more) <= (MANIFEST_CALLS if manifest else 0), f"rank {r}: {LONG - SHORT} more steps made {more} more calls of {key[0]} from {key[1]}")


def check_alarm(plan, seen):
    """What check_seen is for: plans that are not this job's do not pass it."""
    for place in ("private", "exported", "host"):
        other = copy.deepcopy(plan)
        other["stages"][plan["stage"]]["arena_bytes"][place] += 64
        other["stages"][plan["stage"]]["allocated_bytes"] += 64 // (plan["ranks"] if place == "host" else 1)
        try:
            check_seen(other, seen)
        except Failure:
            continue
        raise Failure(f"64 bytes more in the {place} arena are not noticed")


def pss(pid):
    fields = {}
    with open(f"/proc/{pid}/smaps_rollup") as f:
        for line in f:
            word = line.split()
            if word[0].startswith("Pss"):
                fields[word[0]] = int(word[1]) * 1024
    return fields["Pss_Anon:"] + fields["Pss_Shmem:"]


def ranks_of(launcher, ranks):
    """The processes that train, under the launcher or (one rank) itself."""
    if ranks == 1:
        return [launcher]
    found = []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat) as f:
                after = f.read().rsplit(")", 1)[1].split()
            pid = int(stat.split("/")[2])
            with open(f"/proc/{pid}/environ", "rb") as f:
                has_rank = any(v.startswith(b"RANK=") for v in f.read().split(b"\0"))
        except OSError:
            continue
        if int(after[1]) == launcher and has_rank:
            found.append(pid)
    return found


def check_pss(args, ranks, stage, gather, precision):
    """Largest of all ranks in the middle of a job, beyond the plan."""
    with tempfile.TemporaryDirectory(prefix="sherd-memory-") as folder:
        job = Job(args, folder, ranks, stage, gather, precision, 100000, width=192)
        allocated = job.plan()["stages"][stage]["allocated_bytes"]
        process = subprocess.Popen(job.command(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            deadline, metrics = time.monotonic() + 60, os.path.join(folder, "metrics.jsonl")
            while not (os.path.exists(metrics) and open(metrics).read().count("\n") >= 3):
                if process.poll() is not None:
                    raise Failure(f"train: ended early: {process.stderr.read()[-500:]}")
                need(time.monotonic() < deadline, "train: no three steps within a minute")
                time.sleep(0.02)
            pids = ranks_of(process.pid, ranks)
            need(len(pids) == ranks, f"{len(pids)} processes of {ranks} ranks")
            held = [pss(pid) for pid in pids]
        finally:
            process.terminate()
            process.communicate(timeout=30)
    need(min(held) > allocated // 2, f"Pss of a rank is {min(held)}, less than half of the {allocated} planned")
    beyond = max(held) - allocated
    need(beyond <= PSS_LIMIT, f"Pss exceeds the plan by {beyond / MIB:.1f} MiB")
    return beyond


def check(args, ranks, stage, gather, precision):
    with tempfile.TemporaryDirectory(prefix="sherd-memory-") as a, tempfile.TemporaryDirectory(prefix="sherd-memory-") as b:
        job = Job(args, a, ranks, stage, gather, precision, SHORT)
        plan, short = job.plan(), job.watch()
        check_sums(plan)
        row = check_seen(plan, short)
        check_alarm(plan, short)
        check_seen(plan, Job(args, a, ranks, stage, gather, precision, SHORT + 2, resume="auto").watch())
        check_steps(short, Job(args, b, ranks, stage, gather, precision, LONG).watch())
    row["beyond"] = check_pss(args, ranks, stage, gather, precision)
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sherd", required=True)
    parser.add_argument("--interposer", required=True)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--golden", default=os.path.join(here, "../data/golden"))
    parser.add_argument("--table", action="store_true", help="print what was seen of every job")
    args = parser.parse_args()
    passed = failed = 0
    if args.table:
        print("ranks stage gather precision  promised, taken (all ranks)   objects      blas libraries  control  Pss beyond the plan")
    for ranks, stage, gather, precision in configurations():
        try:
            row = check(args, ranks, stage, gather, precision)
        except (Failure, subprocess.TimeoutExpired) as failure:
            print(f"FAIL ranks={ranks} stage={stage} gather={gather} {precision}: {failure}")
            failed += 1
            continue
        passed += 1
        if args.table:
            print(f"{ranks:5d} {stage:5d} {gather:6s} {precision:9s} {row['promised']:12d} {row['taken']:12d} {row['objects']:12d} "
                  f"{row['blas']:9d} {row['libraries']:9d} {row['control']:8d} {row['beyond'] / MIB:8.1f} MiB")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
