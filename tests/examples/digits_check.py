#!/usr/bin/env python3
"""The digits of examples/digits.py are learnt, with the same bits on 1 and 2 ranks.  usage: digits_check.py SHERD SOURCE_ROOT"""
import json
import os
import subprocess
import sys
import tempfile


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def train(sherd, root, folder, ranks):
    files = [f"{part}={{inputs: {folder}/{name}-images.npy, targets: {folder}/{name}-labels.npy}}"
             for part, name in (("data.train", "train"), ("data.validation", "validation"))]
    out = os.path.join(folder, f"ranks-{ranks}")
    settings = [*files, f"run.dir={out}", "train.steps=400", "train.evaluate_every=400", "run.threads=1"]
    text = run(sherd, "train", os.path.join(root, "configs/digits.yaml"), "-n", str(ranks), *(x for s in settings for x in ("--set", s)))
    with open(os.path.join(out, "metrics.jsonl")) as file:
        return text, [json.loads(line) for line in file]


def main():
    sherd, root = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, os.path.join(root, "examples/digits.py"), folder)
        text, rows = train(sherd, root, folder, 1)
        _, again = train(sherd, root, folder, 2)
        assert " accuracy " in text, text
        assert [row["loss"] for row in rows] == [row["loss"] for row in again], "1 and 2 ranks differ"
        assert rows[0]["accuracy"] < 0.3, rows[0]
        accuracy = rows[-1]["validation_accuracy"]
        assert accuracy == again[-1]["validation_accuracy"] and accuracy > 0.9, accuracy
        print(f"accuracy {accuracy}, loss {rows[-1]['validation_loss']:.4f}")


main()
