#!/usr/bin/env python3
"""Writes NAME.yaml, and tokens, into --folder: jobs that keep a GPU busy.  usage: job.py NAME --folder DIR"""
import argparse
import array
import os

JOBS = {
    "gpt2-small": ("gpt2", dict(vocab_size=1000, context=128, d_model=128, n_layer=2, n_head=4), 4, 8, 8),
    "gpt2-124m": ("gpt2", dict(vocab_size=50257, context=1024, d_model=768, n_layer=12, n_head=12), 16, 64, 30),
    "llama-1b": ("llama", dict(vocab_size=32000, context=2048, d_model=2048, n_layer=16, n_head=32, n_kv_head=8, d_ff=8192), 4, 16, 15),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(JOBS))
    parser.add_argument("--folder", required=True)
    args = parser.parse_args()
    family, model, micro, batch, steps = JOBS[args.name]
    tokens = os.path.join(args.folder, "tokens.u16")
    if not os.path.exists(tokens):
        state, out = 1, array.array("H")
        for _ in range(1 << 20):
            state = (state * 1103515245 + 12345) & 0x7FFFFFFF
            out.append((state >> 8) % 900)
        with open(tokens, "wb") as file:
            out.tofile(file)
    keys = ", ".join(f"{key}: {value}" for key, value in model.items())
    with open(os.path.join(args.folder, f"{args.name}.yaml"), "w") as file:
        file.write(f"""name: {args.name}
model: {{family: {family}, {keys}}}
data: {{train: tokens.u16}}
train: {{steps: {steps}, global_batch: {batch}, micro_batch: {micro}, precision: bf16}}
optimizer: {{lr: 1.0e-4}}
checkpoint: {{every: 0, resume: never}}
run: {{device: cuda, threads: 4}}
""")


if __name__ == "__main__":
    main()
