#!/usr/bin/env python3
"""What ./dev demo says at its end: plan beside measurement, model beside 3-gram.  usage: demo_report.py SHERD BYTE_TRIGRAM JOB RUN SECONDS"""
import glob
import json
import subprocess
import sys

sherd, byte_trigram, job, run, seconds = sys.argv[1:]
rows = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
plan = json.loads(subprocess.run([sherd, "plan", job, "--json"], capture_output=True, text=True, check=True).stdout)
planned = next(stage for stage in plan["stages"] if stage["stage"] == plan["stage"])["allocated_bytes"]
counted = max(row["peak_bytes"] for row in rows)
resident = int(open(f"{run}/pss").read()) * 1024
validation = [row["validation_loss"] for row in rows if "validation_loss" in row][-1]

# Both are judged by the same bytes: the targets of the sequences that the validation takes.
manifest = json.load(open(max(glob.glob(f"{run}/checkpoints/step-????????/manifest.json"))))
said = manifest["note"]["job"]
context, wanted = said["model"]["context"], said["train"]["evaluate_sequences"]
held_out = len(open(f"{run}/validation.txt", "rb").read())
sequences = (held_out - 1) // context
judged = (min(wanted, sequences) if wanted else sequences) * context
trigram = float(subprocess.run([byte_trigram, f"{run}/train.txt", f"{run}/validation.txt", str(judged)],
                               capture_output=True, text=True, check=True).stdout)

mib = 1 << 20
print(f"memory a rank      planned {planned / mib:.2f} MiB; held {counted / mib:.2f} MiB in its arenas, {resident / mib:.2f} MiB in all "
      "(Pss, with OpenBLAS, stacks and libraries' data)")
print(f"trained            {len(rows)} steps, {rows[-1]['tokens_seen']} bytes, in {seconds} s")
print(f"validation loss    {validation:.4f} nats a byte on {judged} bytes of files not trained on")
print(f"byte 3-gram        {trigram:.4f} on the same bytes, from all of the same training files")
print(f"outputs            {run}: metrics.jsonl, checkpoints/, train.txt, validation.txt")
if validation >= trigram:
    print("The model did not get below the 3-gram.")
    sys.exit(1)
print(f"The model is {trigram - validation:.4f} nats a byte better than the 3-gram.")
