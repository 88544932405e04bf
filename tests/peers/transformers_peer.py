#!/usr/bin/env python3
"""Compares exported and imported models with Hugging Face's transformers.  usage: transformers_peer.py SHERD

See README.md beside this file.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

os.environ["TRANSFORMERS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

VOCAB, CONTEXT = 257, 32
MODELS = {
    "gpt2": {"family": "gpt2", "d_model": 48, "n_layer": 3, "n_head": 3},
    "gpt2-untied": {"family": "gpt2", "d_model": 64, "n_layer": 2, "n_head": 4, "tied_embeddings": False},
    "llama": {"family": "llama", "d_model": 48, "n_layer": 3, "n_head": 6, "n_kv_head": 2, "d_ff": 120, "rope_theta": 50000.0},
    "llama-tied": {"family": "llama", "d_model": 32, "n_layer": 2, "n_head": 2, "d_ff": 88, "tied_embeddings": True},
}
failures = 0


def check(what, good, shown=""):
    global failures
    failures += not good
    print(f"{'ok   ' if good else 'WRONG'} {what}{': ' if shown else ''}{shown}", flush=True)


def sherd(*args):
    done = subprocess.run([SHERD, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"sherd {' '.join(map(str, args))} exits {done.returncode}:\n{done.stderr}")
    return done.stdout


def write_tokens(path, count, seed):
    """A text with something to learn: three words of five tokens, in any order."""
    rng = random.Random(seed)
    words = [[rng.randrange(VOCAB) for _ in range(5)] for _ in range(3)]
    rng = random.Random(seed + count)
    tokens = [token for _ in range(count // 5) for token in words[rng.randrange(3)]]
    with open(path, "wb") as file:
        file.write(struct.pack(f"<{len(tokens)}H", *tokens))
    return tokens


def job(name, folder, **settings):
    """Writes a job; JSON is YAML."""
    keys = {"name": name, "model": {**MODELS[name], "vocab_size": VOCAB, "context": CONTEXT},
            "data": {"train": "train.u16", "validation": "validation.u16"},
            "train": {"steps": 60, "global_batch": 8, "micro_batch": 2, "evaluate_every": 60},
            "optimizer": {"name": "adamw", "lr": 3e-3, "warmup_steps": 5},
            "run": {"dir": os.path.join(folder, "runs", name)}}
    for path, value in settings.items():
        section, key = path.split("__")
        keys[section][key] = value
    path = os.path.join(folder, f"{name}.yaml")
    with open(path, "w") as file:
        json.dump(keys, file)
    return path


def validation_loss(run):
    with open(os.path.join(run, "metrics.jsonl")) as file:
        return [json.loads(line) for line in file][-1]["validation_loss"]


def peer_loss(model, tokens):
    """The mean over all targets of all whole sequences, in float64 sums of float32 losses."""
    count = (len(tokens) - 1) // CONTEXT
    total = 0.0
    with torch.no_grad():
        for j in range(count):
            window = torch.tensor(tokens[j * CONTEXT:(j + 1) * CONTEXT + 1])
            logits = model(input_ids=window[None, :-1]).logits[0]
            total += torch.nn.functional.cross_entropy(logits, window[1:], reduction="none").double().sum().item()
    return total / (count * CONTEXT)


def peer_continuation(model, prompt, count):
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            tokens.append(model(input_ids=torch.tensor([tokens])).logits[0, -1].argmax().item())
    generated = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, pad_token_id=0, eos_token_id=None)
    return tokens, generated[0].tolist()


def sherd_continuation(checkpoint, prompt, count):
    # 999 as the end would be refused: any token that does not come will do, so the end is cut off below.
    text = sherd("sample", checkpoint, "--ids", " ".join(map(str, prompt)), "--print-ids", "--temperature", 0, "--tokens", count)
    return [int(token) for token in text.split()]


def compare(what, model, loss, checkpoint, tokens):
    theirs = peer_loss(model, tokens)
    check(f"{what}: loss", abs(theirs - loss) <= 1e-5, f"sherd {loss:.9f}, transformers {theirs:.9f}, difference {theirs - loss:+.1e}")
    for start in (3, 101, 777):
        prompt = tokens[start:start + 8]
        ours = sherd_continuation(checkpoint, prompt, CONTEXT - 8)
        theirs, generated = peer_continuation(model, prompt, CONTEXT - 8)
        check(f"{what}: {CONTEXT - 8} tokens after {prompt}", ours == theirs == generated, "" if ours == theirs == generated else f"{ours} {theirs} {generated}")


def check_export(name, folder, tokens):
    run, out = os.path.join(folder, "runs", name), os.path.join(folder, "hf-" + name)
    sherd("train", job(name, folder), "-n", 2)
    checkpoints = os.path.join(run, "checkpoints")
    sherd("checkpoint", "export", checkpoints, out, "--format", "hf")
    sherd("checkpoint", "export", checkpoints, out + ".safetensors")
    model, report = transformers.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    wrong = {key: value for key, value in report.items() if value and "error" not in key}
    check(f"{name}: nothing is missing, nothing is left over", not wrong, str(wrong) if wrong else type(model).__name__)
    ours, state = load_file(out + ".safetensors"), model.state_dict()
    same = all(torch.equal(value, state[key if key in state else "transformer." + key]) for key, value in ours.items())
    check(f"{name}: {len(ours)} parameters have the same bits", same)
    compare(name, model.float().eval(), validation_loss(run), checkpoints, tokens)
    for dtype, kind in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        sherd("checkpoint", "export", checkpoints, f"{out}-{dtype}", "--format", "hf", "--dtype", dtype)
        rounded = load_file(os.path.join(f"{out}-{dtype}", "model.safetensors"))
        plain = load_file(os.path.join(out, "model.safetensors"))
        check(f"{name}: {dtype} is fp32 rounded", all(torch.equal(rounded[key], plain[key].to(kind)) for key in plain))
        loaded = transformers.AutoModelForCausalLM.from_pretrained(f"{out}-{dtype}", dtype="auto")
        check(f"{name}: {dtype} loads as {loaded.dtype}", loaded.dtype == kind)
    return model


def write_llmc(model, path, kind):
    """GPT-2 as llm.c's train_gpt2.py writes it: Linear layers, so matrices are turned; the token table is padded."""
    state, config = model.state_dict(), model.config
    padded = (config.vocab_size + 127) // 128 * 128
    with open(path, "wb") as file:
        header = [20240326, 3 if kind is torch.float32 else 5, config.n_positions, config.vocab_size, config.n_layer, config.n_head, config.n_embd, padded]
        file.write(struct.pack("<256i", *header, *[0] * (256 - len(header))))

        def put(tensor):
            file.write(tensor.detach().to(kind).contiguous().view(torch.uint8).numpy().tobytes())
        put(torch.nn.functional.pad(state["transformer.wte.weight"], (0, 0, 0, padded - config.vocab_size)))
        put(state["transformer.wpe.weight"])
        for part in ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight",
                     "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"):
            for layer in range(config.n_layer):
                tensor = state[f"transformer.h.{layer}.{part}"]
                put(tensor.t() if tensor.dim() == 2 else tensor)
        put(state["transformer.ln_f.weight"])
        put(state["transformer.ln_f.bias"])


def evaluate(name, folder, weights, **settings):
    """The loss of one validation by a job that starts from `weights` and learns nothing."""
    run = os.path.join(folder, "runs", f"{name}-{len(os.listdir(os.path.join(folder, 'runs')))}")
    sherd("train", job(name, folder, model__init=weights, run__dir=run, train__steps=1, train__evaluate_every=1,
                       optimizer__lr=0.0, optimizer__warmup_steps=0, **settings))
    return validation_loss(run)


def check_import(name, folder, model, tokens):
    out = os.path.join(folder, "saved-" + name)
    model.save_pretrained(out)
    sources = [("safetensors of transformers", os.path.join(out, "model.safetensors"), model),
               ("their folder", out, model)]
    try:
        model.save_pretrained(out + "-parts", max_shard_size="100KB")
        parts = [entry for entry in os.listdir(out + "-parts") if "-of-" in entry]
        sources.append((f"{len(parts)} parts", out + "-parts", model))
    except TypeError:
        pass
    if MODELS[name]["family"] == "gpt2" and MODELS[name].get("tied_embeddings", True):
        for kind in (torch.float32, torch.bfloat16):
            path = os.path.join(folder, f"{name}-{kind}.bin")
            write_llmc(model, path, kind)
            rounded = transformers.AutoModelForCausalLM.from_pretrained(out).to(kind).float().eval()
            sources.append((f"llm.c, {kind}", path, rounded))
    for what, path, peer in sources:
        to = os.path.join(folder, "imported", name, what.replace(" ", "-"))
        sherd("checkpoint", "import", path, to, "--job", job(name, folder))
        compare(f"{name} from {what}", peer, evaluate(name, folder, path), to, tokens)
        check(f"{name} from {what}: the imported checkpoint as model.init", evaluate(name, folder, to) == evaluate(name, folder, path))


def main():
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {sherd('--version').strip()}")
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        write_tokens(os.path.join(folder, "train.u16"), 20000, 7)
        tokens = write_tokens(os.path.join(folder, "validation.u16"), 2000, 7)
        for name in MODELS:
            model = check_export(name, folder, tokens)
            if "--no-import" not in sys.argv:
                check_import(name, folder, model, tokens)
    print(f"{failures} differ" if failures else "all equal")
    return failures > 0


if __name__ == "__main__":
    SHERD = os.path.abspath(sys.argv[1])
    sys.exit(main())
