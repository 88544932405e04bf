#!/usr/bin/env python3
"""Makes the reference runs of mlp models, in float64 and in plain Python, from the formulas alone.

    python3 make_mlp.py        writes classes/ and numbers/ beside itself

Each folder holds inputs.npy, targets.npy and init.safetensors, float32 or smaller, and expected.json: per step loss, grad_norm
(before clipping), lr and, of classes, accuracy; and after the last step the loss (and accuracy) over all samples in order,
as a validation has it. tests/train/test_mlp.c has the jobs. AdamW, clipping and schedule are those of the other reference
runs (tests/data/golden/README.md); there is no shuffling: step s sees samples sB, sB + 1, … modulo their number.
"""
import json
import math
import os
import struct

STEPS, WARMUP, LR, MIN_LR, BETAS, EPS, DECAY, CLIP = 30, 4, 1e-2, 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0


class Numbers:
    """Evenly spread numbers, the same everywhere."""

    def __init__(self, seed):
        self.state = seed

    def word(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.state >> 33

    def normal(self):
        return sum(self.word() / 2**31 for _ in range(12)) - 6


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def write_npy(path, code, shape, values):
    header = f"{{'descr': '{code}', 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(63 - 10 + 64 * ((len(header) + 10) // 64)) + "\n"
    kind = {"|u1": "B", "|i1": "b", "<f4": "f", "<f8": "d"}[code]
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}{kind}", *values))


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, shape, values in tensors:
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def relu(x):
    return (x, 1.0) if x > 0 else (0.0, 0.0)


def gelu(x):
    """The value and the slope of the tanh form."""
    k = math.sqrt(2 / math.pi)
    t = math.tanh(k * (x + 0.044715 * x**3))
    return x / 2 * (1 + t), (1 + t) / 2 + x / 2 * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x)


def forward(layers, activation, x):
    """The inputs of every layer with the slopes behind it, and the outputs."""
    seen, slopes = [x], []
    for i, (weight, bias) in enumerate(layers):
        z = [b + sum(w * v for w, v in zip(row, x)) for row, b in zip(weight, bias)]
        if i == len(layers) - 1:
            return seen, slopes, z
        pairs = [activation(v) for v in z]
        x = [value for value, _ in pairs]
        seen.append(x)
        slopes.append([slope for _, slope in pairs])


def loss_of(case, outputs, target):
    """Loss, gradient of the outputs, counted targets, correct predictions."""
    if case["classes"]:
        if target == case["ignored"]:
            return 0.0, [0.0] * len(outputs), 0, 0
        largest = max(outputs)
        powers = [math.exp(v - largest) for v in outputs]
        share = [p / sum(powers) for p in powers]
        gradient = [s - (j == target) for j, s in enumerate(share)]
        return math.log(sum(powers)) + largest - outputs[target], gradient, 1, int(outputs.index(largest) == target)
    errors = [o - t for o, t in zip(outputs, target)]
    return sum(e * e for e in errors), [2 * e for e in errors], len(errors), 0


def lr_at(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    return MIN_LR + (LR - MIN_LR) / 2 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


def gradients_of(case, layers, samples):
    """Mean loss and its gradients in the shape of `layers`, the share of correct predictions."""
    sums = [([[0.0] * len(row) for row in weight], [0.0] * len(bias)) for weight, bias in layers]
    loss, count, right = 0.0, 0, 0
    for x, target in samples:
        seen, slopes, outputs = forward(layers, case["activation"], x)
        value, flow, counted, correct = loss_of(case, outputs, target)
        loss, count, right = loss + value, count + counted, right + correct
        for i in reversed(range(len(layers))):
            weight_sum, bias_sum = sums[i]
            for j, g in enumerate(flow):
                bias_sum[j] += g
                for k, v in enumerate(seen[i]):
                    weight_sum[j][k] += g * v
            if i > 0:
                flow = [slopes[i - 1][k] * sum(flow[j] * layers[i][0][j][k] for j in range(len(flow))) for k in range(len(seen[i]))]
    mean = [([[g / count for g in row] for row in weight], [g / count for g in bias]) for weight, bias in sums]
    return loss / count, mean, right / count


def evaluate(case, layers):
    found = [loss_of(case, forward(layers, case["activation"], x)[2], target) for x, target in case["samples"]]
    count = sum(f[2] for f in found)
    return sum(f[0] for f in found) / count, sum(f[3] for f in found) / count


def train(case, layers):
    out = {"loss": [], "grad_norm": [], "lr": [], "accuracy": []}
    flat = lambda parts: [(row, k, True) for weight, _ in parts for row in weight for k in range(len(row))] + \
        [(bias, k, False) for _, bias in parts for k in range(len(bias))]
    moments = [[0.0, 0.0] for _ in flat(layers)]
    samples = case["samples"]
    for step in range(STEPS):
        first = step * case["batch"]
        loss, mean, accuracy = gradients_of(case, layers, [samples[(first + i) % len(samples)] for i in range(case["batch"])])
        norm = math.sqrt(sum(row[k] ** 2 for row, k, _ in flat(mean)))
        clip = CLIP / (norm + 1e-6) if norm > CLIP else 1.0
        lr = lr_at(step)
        for (parameter, k, matrix), (row, _, _), moment in zip(flat(layers), flat(mean), moments):
            g = row[k] * clip
            moment[0] = BETAS[0] * moment[0] + (1 - BETAS[0]) * g
            moment[1] = BETAS[1] * moment[1] + (1 - BETAS[1]) * g * g
            m, v = moment[0] / (1 - BETAS[0] ** (step + 1)), moment[1] / (1 - BETAS[1] ** (step + 1))
            parameter[k] = parameter[k] * (1 - lr * DECAY * matrix) - lr * m / (math.sqrt(v) + EPS)
        for key, value in zip(("loss", "grad_norm", "lr", "accuracy"), (loss, norm, lr, accuracy)):
            out[key].append(value)
    out["final_loss"], out["final_accuracy"] = evaluate(case, layers)
    return out


def make_layers(numbers, widths):
    layers = []
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        sigma = math.sqrt((2 if i < len(widths) - 2 else 1) / inputs)
        layers.append(([[single(sigma * numbers.normal()) for _ in range(inputs)] for _ in range(outputs)],
                       [single(0.1 * numbers.normal()) for _ in range(outputs)]))
    return layers


def write_case(folder, case, layers):
    tensors = []
    for i, (weight, bias) in enumerate(layers):
        tensors.append((f"layers.{i}.weight", [len(weight), len(weight[0])], [w for row in weight for w in row]))
        tensors.append((f"layers.{i}.bias", [len(bias)], bias))
    write_safetensors(os.path.join(folder, "init.safetensors"), tensors)
    with open(os.path.join(folder, "expected.json"), "w") as file:
        json.dump(train(case, layers), file, indent=1)
        file.write("\n")


def make_classes(folder):
    """46 samples of bytes, 4 classes by the two loudest of 7 inputs; some have no class."""
    numbers = Numbers(1)
    rows = [[numbers.word() % 256 for _ in range(7)] for _ in range(46)]
    labels = [-1 if i % 9 == 4 else (row[0] > row[1]) + 2 * (row[2] > row[3]) for i, row in enumerate(rows)]
    write_npy(os.path.join(folder, "inputs.npy"), "|u1", "(46, 7)", [v for row in rows for v in row])
    write_npy(os.path.join(folder, "targets.npy"), "|i1", "(46,)", labels)
    samples = [([single(v * (1 / 255)) for v in row], label) for row, label in zip(rows, labels)]
    case = {"classes": True, "ignored": -1, "activation": relu, "batch": 12, "samples": samples}
    write_case(folder, case, make_layers(numbers, [7, 13, 13, 4]))


def make_numbers(folder):
    """31 samples, whose targets are two smooth functions of 5 inputs."""
    numbers = Numbers(2)
    rows = [[single(numbers.normal()) for _ in range(5)] for _ in range(31)]
    targets = [[math.sin(row[0]) + row[1] * row[2], row[3] - 0.5 * row[4] ** 2] for row in rows]
    write_npy(os.path.join(folder, "inputs.npy"), "<f4", "(31, 5)", [v for row in rows for v in row])
    write_npy(os.path.join(folder, "targets.npy"), "<f8", "(31, 2)", [v for row in targets for v in row])
    samples = [(row, [single(v) for v in target]) for row, target in zip(rows, targets)]
    case = {"classes": False, "activation": gelu, "batch": 12, "samples": samples}
    write_case(folder, case, make_layers(numbers, [5, 17, 17, 17, 2]))


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    for name, make in (("classes", make_classes), ("numbers", make_numbers)):
        os.makedirs(os.path.join(here, name), exist_ok=True)
        make(os.path.join(here, name))
