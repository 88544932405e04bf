#!/usr/bin/env python3
"""Run the reference cases through `sherd train` and compare step by step.

usage: reference_runs.py --sherd build/sherd [--cases DIR] [--only A,B] [--precision fp32|bf16|fp16] [--set KEY=VALUE]...
                         [--quick] [--replicas] [--device [--links nccl,staged] [--ranks 1,2,4]] [--bitwise]

For every case: ranks x stage x micro-batch, each in a fresh folder.  Checks loss, grad_norm and lr of every step and the
final norm of every parameter (from `sherd checkpoint export` to safetensors) against expected.json.  With --bitwise also
that loss, grad_norm and the exported file are the same bits for every number of ranks and stage
at one micro-batch size, and one number of replicas.  In 16 bits the gradient norm of a case's sensitive_steps is not
compared: there float32 is off by a third too when the initial weights alone are rounded to bf16.  With --replicas the grid is that of hybrid sharding: meshes of
replicas x ranks in each, stages 1 to 3, gathers shared and in copies, and one replica to compare with.  With --device
runs are on run.device cuda (--sherd may be the program with the software device), on 1, 2 and 4 ranks, over both links, or what --ranks and --links name;
sums are in fixed order there too, so that --bitwise holds among them.  --cases defaults to data/golden beside this file, whose README.md states what is computed.
Exit 0 when all hold; the last line counts them.  Standard library only.
"""
import argparse, hashlib, json, math, os, struct, subprocess, sys, tempfile

FORMATS = {"llmc": "llmc", "u16": "u16", "u32": "u32"}


def job(case, folder, stage, micro, precision, extra):
    m, d, t = case["model"], case["data"], case["train"]
    L = [f"name: {case['name']}", "model:", f"  family: {m['family']}", f"  vocab_size: {m['vocab']}", f"  context: {m['context']}",
         f"  d_model: {m['d_model']}", f"  n_layer: {m['n_layer']}", f"  n_head: {m['n_head']}",
         f"  tied_embeddings: {str(m['tied']).lower()}", f"  init: {folder}/init.safetensors"]
    if m["family"] == "llama":
        L += [f"  n_kv_head: {m['n_kv_head']}", f"  d_ff: {m['d_ff']}", f"  rope_theta: {m['rope_theta']}"]
    if case.get("frozen"):
        L += ["  frozen: " + json.dumps(case["frozen"])]
    L += ["data:", f"  train: {folder}/tokens.bin", f"  format: {FORMATS[d['format']]}", "  shuffle: false"]
    if d.get("ignored_fraction"):
        L += [f"  ignored_token: {d['ignored_token']}"]
    L += ["train:", f"  steps: {t['steps']}", f"  global_batch: {t['global_batch']}", f"  micro_batch: {micro}",
          f"  precision: {precision}", f"  clip: {float(t['clip'])}"]
    L += ["optimizer:", f"  name: {t['optimizer']}"]
    for key in ("lr", "min_lr", "schedule", "warmup_steps", "warmup_tokens", "decay_steps", "betas", "eps", "momentum", "nesterov", "weight_decay",
                "ns_steps", "adjust_lr", "beta2_decay", "update_clip", "scale_floor", "decay", "groups", "layer_lr_decay"):
        if t.get(key) is not None:
            L += [f"  {key}: {json.dumps(t[key])}"]
    L += ["shard:", f"  stage: {stage}"] + extra
    L += ["checkpoint:", "  dir: ckpt", f"  every: {t['steps']}", "log:", "  dir: log", "  every: 1"]
    return "\n".join(L) + "\n"


def read_safetensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        data = f.read()
    out = {}
    for k, v in head.items():
        if k == "__metadata__":
            continue
        assert v["dtype"] == "F32", f"{k} exported as {v['dtype']}"
        a, b = v["data_offsets"]
        out[k] = struct.unpack(f"<{(b - a) // 4}f", data[a:b])
    return out, hashlib.sha256(data).hexdigest()


def run(args, case, folder, ranks, stage, micro, precision, extra=(), label=""):
    exp = json.load(open(f"{folder}/expected.json"))["f64"]
    where = tempfile.mkdtemp(prefix="sherd-ref-")
    open(f"{where}/job.yaml", "w").write(job(case, folder, stage, micro, precision, list(extra)))
    sets = [x for kv in args.set for x in ("--set", kv)]
    p = subprocess.run([args.sherd, "train", f"{where}/job.yaml", "-n", str(ranks)] + sets, capture_output=True, text=True, timeout=args.timeout)
    name = f"{case['name']} {precision} ranks={ranks} stage={stage} micro={micro}{label}"
    if p.returncode:
        return name, f"exit {p.returncode}: {p.stderr.strip().splitlines()[-1:] or p.stdout.strip().splitlines()[-1:]}", None
    rows = [json.loads(x) for x in open(f"{where}/log/metrics.jsonl")]
    if [r["step"] for r in rows] != list(range(len(exp["loss"]))):
        return name, f"metrics has steps {[r['step'] for r in rows][:3]}… ({len(rows)}), expected 0…{len(exp['loss']) - 1}", None
    dl, dg = (2e-5, 1e-4) if precision == "fp32" else (0.03, 0.08)
    if case["train"]["optimizer"] == "lion":                 # sign() flips on rounding: looser, as float32 itself differs from float64
        dl, dg = dl * 10, dg * 10
    for s, r in enumerate(rows):
        sensitive = precision != "fp32" and s in case.get("sensitive_steps", ())
        if not abs(r["loss"] - exp["loss"][s]) <= dl:
            return name, f"step {s}: loss {r['loss']!r}, expected {exp['loss'][s]!r}", None
        if not sensitive and not abs(r["grad_norm"] - exp["grad_norm"][s]) <= dg * exp["grad_norm"][s]:
            return name, f"step {s}: grad_norm {r['grad_norm']!r}, expected {exp['grad_norm'][s]!r}", None
        if not math.isclose(r["lr"], exp["lr"][s], rel_tol=1e-6, abs_tol=1e-12):
            return name, f"step {s}: lr {r['lr']!r}, expected {exp['lr'][s]!r}", None
    q = subprocess.run([args.sherd, "checkpoint", "export", f"{where}/ckpt", "--to", f"{where}/out.safetensors"],
                       capture_output=True, text=True, timeout=args.timeout)
    if q.returncode:
        return name, f"export: exit {q.returncode}: {q.stderr.strip()[-200:]}", None
    got, digest = read_safetensors(f"{where}/out.safetensors")
    if set(got) != set(exp["final"]):
        return name, f"export names differ: missing {sorted(set(exp['final']) - set(got))[:3]}, extra {sorted(set(got) - set(exp['final']))[:3]}", None
    if precision == "fp32" and case["train"]["optimizer"] != "lion":
        for k, v in got.items():
            l2 = math.sqrt(sum(x * x for x in v))
            if abs(l2 - exp["final"][k]["l2"]) > 1e-4 * exp["final"][k]["l2"]:
                return name, f"final {k}: l2 {l2}, expected {exp['final'][k]['l2']}", None
    bits = (tuple((r["loss"], r["grad_norm"]) for r in rows), digest)
    return name, None, bits


MESHES = [(1, 4), (2, 1), (3, 1), (4, 1), (2, 2), (2, 3), (3, 2), (2, 4), (4, 2), (6, 1), (8, 1)]     # replicas x ranks in each
QUICK_MESHES = [((1, 4), 3, "shared"), ((2, 2), 1, "shared"), ((2, 2), 3, "copy"), ((2, 4), 2, "copy"), ((4, 2), 3, "shared"), ((4, 1), 2, "shared"),
                ((2, 1), 1, "copy"), ((2, 3), 3, "shared"), ((3, 1), 3, "shared"), ((3, 2), 1, "copy")]


LINKS = ("nccl", "staged")


def device_grid(batch, quick, links, ranks):
    """Runs as (ranks, stage, micro-batch, replicas, link), over `links`, on as many ranks as `ranks` has."""
    some = [(1, 3, None), (2, 0, "nccl"), (2, 3, "nccl"), (4, 2, "nccl"), (2, 1, "staged"), (4, 3, "staged")]
    every = [(r, s, "nccl") for r in (1, 2, 4) for s in range(4)] + [(2, s, "staged") for s in range(4)]
    return [(r, s, 1, 1, link if r > 1 else None) for r, s, link in (some if quick else every)
            if batch % r == 0 and r in ranks and (r == 1 or link in links)]


def hybrid_grid(batch, quick):
    """Runs as (ranks, stage, micro-batch, replicas, gather)."""
    grid = QUICK_MESHES if quick else [(mesh, s, g) for mesh in MESHES for s in (1, 2, 3) for g in ("shared", "copy")]
    return [(R * G, s, 1, R, g) for (R, G), s, g in grid if batch % (R * G) == 0]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sherd", required=True)
    ap.add_argument("--cases", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "golden"))
    ap.add_argument("--only", type=lambda x: x.split(","))
    ap.add_argument("--set", action="append", default=[])
    ap.add_argument("--precision", default="fp32", choices=("fp32", "bf16", "fp16"))
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--replicas", action="store_true")
    ap.add_argument("--device", action="store_true")
    ap.add_argument("--links", type=lambda x: x.split(","), default=LINKS)
    ap.add_argument("--ranks", type=lambda x: [int(n) for n in x.split(",")], default=(1, 2, 4))
    ap.add_argument("--bitwise", action="store_true")
    ap.add_argument("--timeout", type=float, default=120)
    args = ap.parse_args()
    args.sherd = os.path.abspath(args.sherd)
    good = bad = 0
    for n in sorted(os.listdir(args.cases)):
        folder = os.path.abspath(os.path.join(args.cases, n))
        if not os.path.exists(f"{folder}/case.json") or (args.only and n not in args.only):
            continue
        case = json.load(open(f"{folder}/case.json"))
        if args.device and case["train"]["optimizer"] in ("muon", "adafactor"):
            print(f"{n}: left out, its optimizer runs on the CPU only", flush=True)
            continue
        B = case["train"]["global_batch"]
        grid = [(r, s, m) for r in (1, 2, 3, 4, 6, 8) for s in (0, 1, 2, 3) for m in (1, 2) if B % (r * m) == 0]
        if args.quick:
            grid = [(1, 0, 1), (2, 3, 1), (4, 2, 1), (3, 1, 1) if B % 3 == 0 else (8, 1, 1), (2, 2, 2)]
        grid = [(*g, 1, None) for g in grid if B % (g[0] * g[2]) == 0]
        if args.replicas:
            grid = hybrid_grid(B, args.quick)
        if args.device:
            grid = device_grid(B, args.quick, args.links, args.ranks)
        seen = {}
        for r, s, m, replicas, gather in grid:
            if args.device:
                mesh = ["run:", "  device: cuda"] + ([f"  comm: {gather}"] if gather else [])
                label = f" device {gather or ''}"
            else:
                mesh = [f"  replicas: {replicas}", f"  gather: {gather}"] if gather else []
                label = f" replicas={replicas} gather={gather}" if gather else ""
            name, why, bits = run(args, case, folder, r, s, m, args.precision, mesh, label)
            if not why and args.bitwise:
                first = seen.setdefault((m, replicas), (name, bits))
                if first[1] != bits:
                    why = f"not the same bits as {first[0]}"
            good, bad = good + (not why), bad + bool(why)
            if why:
                print(f"FAIL {name}: {why}", flush=True)
    print(f"{good} passed, {bad} failed")
    return 1 if bad or not good else 0


if __name__ == "__main__":
    sys.exit(main())
