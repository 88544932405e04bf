"""The steps of tests/gpu/run. Each returns numbers and texts for the table, or raises Failed or LeftOut."""
import json
import os
import re
import signal
import statistics
import time

import job
from runner import Failed, LeftOut

BESIDES_BYTES = 3 << 30  # what CUDA, cuBLASLt and NCCL may take besides the plan

# --- what is here -------------------------------------------------------------------------------------------------------


def versions(run):
    """The GPU, its driver, the program's build."""
    run.fact("sherd", run.run([run.program("sherd"), "--version"], 10).splitlines()[0])
    query = [run.tool("nvidia-smi"), "--query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem", "--format=csv,noheader"]
    run.fact("gpu", run.run(query, 15).splitlines()[0])
    run.run([run.tool("nvidia-smi"), "topo", "-m"], 15, expect=None)


def doctor(run):
    """sherd doctor finds the GPU, cuBLASLt and NCCL."""
    text = run.run([run.program("sherd"), "doctor"])
    line = next((line for line in text.splitlines() if " devices " in line), "")
    if not line.startswith("ok"):
        raise Failed(line or "it says nothing of devices")
    run.fact("devices", " ".join(line.split()[2:]))


# --- kernels ------------------------------------------------------------------------------------------------------------


def suite(run, name, rehearsed="*"):
    """Runs a Criterion program. Tests that skip themselves are told, and count as failed where nothing else has run.
    `rehearsed`: the tests of a rehearsal; the software device's suites have them all anyway."""
    chosen = ["--filter", rehearsed] if run.rehearsing else []
    text = run.run([run.program(name), "--verbose", "-j4", "--timeout", "100", *chosen], expect=(0, 1))
    total = re.search(r"Tested: (\d+) \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)", text)
    if not total:
        raise Failed(f"{name} did not come to its end")
    skipped = re.findall(r"\[SKIP\] (\S+?): (?!Test is disabled)(.*)", text)  # disabled: those that are not chosen
    tested, passing, failing, crashing = map(int, total.groups())
    ran = text.count("[PASS]")
    if failing or crashing:
        bad = re.findall(r"\[(?:FAIL|CRASH)\] (\S+?)[: ]", text)
        raise Failed(f"{name}: {failing} failing, {crashing} crashing: {', '.join(bad[:3])}")
    if ran == 0:
        raise Failed(f"{name}: nothing has run: {skipped[0][1] if skipped else 'there are no tests'}")
    run.fact(name, f"{ran} passed" + (f", {len(skipped)} skipped ({skipped[0][1]})" if skipped else ""))
    return text


def device(run):
    """Memory, streams, events and failures that stick."""
    suite(run, "gpu-device")


def kernels(run):
    """Every operation and the optimizer, as on the software device: against float64 and the CPU's bits."""
    suite(run, "gpu-ops", "cuda_norm/*")
    suite(run, "gpu-attention", "cuda_losses/*")
    suite(run, "gpu-optim", "*/squares_are_summed_exactly")


def products(run):
    """cuBLASLt: shapes x transposes x epilogues, against float64."""
    suite(run, "gpu-products", "*/every_shape_and_operand_matches_the_reference")


def links(run):
    """The staged link with ranks on one GPU, and NCCL with as many ranks as there are GPUs, abort included."""
    suite(run, "gpu-links", "*/refuse_what_they_cannot_move")


def sanitize(run, tool, *options):
    command = [run.tool("compute-sanitizer"), f"--tool={tool}", "--target-processes=all", "--error-exitcode=9", *options]
    for family in ("gpt2", "llama"):
        path = job.write(run.folder(f"{tool}-{family}"), f"{family}-tiny", {"train.steps": 1})
        run.run(command + [run.wrapper("sherd"), "train", path, "-n", "1"], run.left() * 0.6)
    run.fact("ran", "a step of gpt2-tiny and llama-tiny")


def memcheck(run):
    """compute-sanitizer: no access outside of memory in a step of small jobs."""
    sanitize(run, "memcheck", "--leak-check=no")


def racecheck(run):
    """compute-sanitizer: no race in shared memory in a step of small jobs."""
    sanitize(run, "racecheck", "--racecheck-report=all")


# --- training -----------------------------------------------------------------------------------------------------------


def losses(run):
    """1, 2 and 4 ranks on one GPU over the staged link: losses, norms and weights are those of the reference."""
    cases, ranks = ("gpt2-adam", "1,2") if run.rehearsing else ("gpt2-tiny,llama-tiny", "1,2,4")
    for precision in ("fp32",) if run.rehearsing else ("fp32", "bf16"):
        text = run.run(run.python("tests/reference_runs.py", "--sherd", run.wrapper("sherd"), "--device", "--links", "staged", "--ranks", ranks,
                                  "--quick", "--bitwise", "--only", cases, "--precision", precision), expect=(0, 1))
        last = text.strip().splitlines()[-1]
        if not re.fullmatch(r"[1-9]\d* passed, 0 failed", last):
            raise Failed(f"{precision}: {last}: " + " / ".join(line for line in text.splitlines() if line.startswith("FAIL"))[:400])
        run.fact(precision, last)


def memory(run):
    """A job that does not fit is refused with what it asks for and what is free."""
    path = job.write(run.folder("memory"), "too-large")
    began = time.monotonic()
    text = run.run([run.program("sherd"), "train", path, "-n", "1"], expect=range(1, 126))
    if not re.search(r"needs .* of which .* free", text):
        raise Failed("it does not say what is needed and what is free: " + text.strip().splitlines()[-1])
    run.fact("refused after", f"{time.monotonic() - began:.1f} s")


def rank_processes(launcher):
    """Processes that the launcher has started."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if int(file.read().rsplit(")", 1)[1].split()[1]) == launcher:
                    found.append(int(pid))
        except (OSError, IndexError):
            continue
    return sorted(found)


def killed_rank(run):
    """Of two ranks on one GPU one is killed in the middle of a run: the other ends, names it, and frees the GPU."""
    folder = run.folder("killed")
    path = job.write(folder, "gpt2-tiny", {"train.steps": 1000000})
    process = run.start([run.program("sherd"), "train", path, "-n", "2", "--set", "run.comm=staged", "--set", "run.timeout_s=20"])
    try:
        wait_for_rows(run, process, folder, 3)
        ranks = rank_processes(process.pid)
        if len(ranks) < 2:
            raise Failed(f"the launcher has {len(ranks)} processes")
        began = time.monotonic()
        os.kill(ranks[-1], signal.SIGKILL)
        while process.poll() is None:
            if time.monotonic() - began > 30:
                raise Failed("the other rank is there still, 30 s later")
            time.sleep(0.05)
    finally:
        text = run.end(process)
    if process.returncode == 0 or not re.search(r"rank \d", text):
        raise Failed(f"it ended with {process.returncode}: " + text.strip().splitlines()[-1])
    run.fact("ended after", f"{time.monotonic() - began:.1f} s")


# --- speed --------------------------------------------------------------------------------------------------------------


def rows_of(folder):
    try:
        with open(os.path.join(folder, "run", "metrics.jsonl")) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except OSError:
        return []


def wait_for_rows(run, process, folder, count):
    """Metrics of at least so many steps. Fails: Failed, when the job ends or time does before."""
    while len(rows_of(folder)) < count:
        if process.poll() is not None and len(rows_of(folder)) < count:
            raise Failed(f"the job ended with {process.returncode}: " + " / ".join(run.output(process).strip().splitlines()[-3:]))
        if run.left() < 1:
            raise Failed(f"only {len(rows_of(folder))} steps in time")
        time.sleep(0.1)
    return rows_of(folder)


def used_bytes(run):
    """Of the first GPU, by whomever; None without nvidia-smi."""
    try:
        text = run.run([run.tool("nvidia-smi"), "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"], 10)
    except LeftOut:
        return None
    return int(text.split()[0]) << 20


def ceilings(run):
    """What this GPU reaches in copies and in products, by which the rest is judged."""
    text = run.run([run.program("gpu-bench-ops"), *(["64", "64"] if run.rehearsing else [])])
    found = {(name, dtype): float(rate) for name, dtype, rate in re.findall(r"^(\S+) +(fp32|bf16) .* (\d+) GB/s$", text, re.M)}
    run.fact("copy GB/s", found[("copy", "bf16")])
    slow = sorted((rate, name) for (name, dtype), rate in found.items() if dtype == "bf16")[:3]
    run.fact("slowest by bytes", ", ".join(f"{name} {rate:.0f} GB/s" for rate, name in slow))
    text = run.run([run.program("gpu-bench-products"), *(["128"] if run.rehearsing else [])])
    found = re.findall(r"^(\S+(?: \S+)?) +(forward|to inputs|to weights) +(fp32|bf16) .* ([\d.]+) TFLOP/s$", text, re.M)
    rates = {f"{name} {kind}": float(rate) for name, kind, dtype, rate in found if dtype == "bf16"}
    run.fact("product TFLOP/s", rates["square forward"])
    slow = sorted((rate, name) for name, rate in rates.items())[:3]
    run.fact("slowest products", ", ".join(f"{name} {rate:.0f} TFLOP/s" for rate, name in slow))


def compare_memory(run, plan, rows, used):
    """What the plan says, what the program counts, and by how much more of the GPU is taken than before."""
    planned = next(stage for stage in plan["stages"] if stage["stage"] == plan["stage"])["allocated_bytes"]
    held = max(row["peak_bytes"] for row in rows)
    run.fact("planned GiB", round(planned / 2**30, 3))
    if held != planned:
        raise Failed(f"{held} bytes are held, {planned} are planned")
    if used is not None:
        run.fact("taken besides MiB", round((used - planned) / 2**20))
        if not 0 <= used - planned < BESIDES_BYTES:
            raise Failed(f"{used} bytes of the GPU are taken, {planned} are planned")


def train_for_speed(run, name, count):
    """Steps of a job on one rank, the first few left out; it is killed when there are enough, since it would save gigabytes."""
    name = "gpt2-tiny" if run.rehearsing else name
    folder = run.folder("speed")
    path = job.write(folder, name, {"train.steps": 1000000})
    plan = json.loads(run.run([run.program("sherd"), "plan", path, "-n", "1", "--json"], 20))
    before = used_bytes(run)
    process = run.start([run.program("sherd"), "train", path, "-n", "1"])
    try:
        rows = wait_for_rows(run, process, folder, count)
        used = None if before is None else used_bytes(run) - before
    finally:
        run.end(process)
    rows = rows[count // 3:]
    median = {key: statistics.median(row[key] for row in rows)
              for key in ("tokens_per_s", "model_tflop_per_s", "step_ms", "exposed_comm_ms", "data_ms")}
    run.fact("tokens/s", round(median["tokens_per_s"]))
    run.fact("model TFLOP/s", round(median["model_tflop_per_s"], 1))
    if run.known.get("product TFLOP/s"):
        run.fact("MFU of what products reach", f"{100 * median['model_tflop_per_s'] / run.known['product TFLOP/s']:.0f}%")
    run.fact("step ms", round(median["step_ms"], 1))
    run.fact("waits for ranks and data ms", round(median["exposed_comm_ms"] + median["data_ms"], 1))
    compare_memory(run, plan, rows, used)


def speed_gpt2(run):
    """GPT-2 124M: tokens/s, share of the measured ceiling, memory against the plan."""
    train_for_speed(run, "gpt2-124m", 12)


def speed_llama(run):
    """A Llama of a billion parameters: the same."""
    train_for_speed(run, "llama-1b", 6)


# In order: what says most for its time comes first. Limits in seconds.
STEPS = (
    ("versions", 30, versions),
    ("doctor", 30, doctor),
    ("device", 30, device),
    ("kernels", 60, kernels),
    ("products", 60, products),
    ("links", 60, links),
    ("losses", 100, losses),
    ("memory", 20, memory),
    ("killed-rank", 60, killed_rank),
    ("ceilings", 60, ceilings),
    ("speed-gpt2", 60, speed_gpt2),
    ("speed-llama", 60, speed_llama),
    ("memcheck", 60, memcheck),
    ("racecheck", 60, racecheck),
)
