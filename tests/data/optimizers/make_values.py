#!/usr/bin/env python3
"""Makes values.json with PyTorch (2.9 or newer): where torch.optim.Muon and torch.optim.Adafactor take parameters in
100 steps.

    python3 make_values.py > values.json

Starting values and gradients are integers over 2^16, made by `noise` below, which tests/optim/test_values.c makes again;
so only results are kept. "float64" are runs in which everything is float64: for Muon, whose Newton-Schulz iteration
PyTorch casts to bfloat16, torch.bfloat16 stands for float64 meanwhile. "bfloat16" are Muon's runs as PyTorch ships it,
with float32 parameters."""
import json

import torch

STEPS = 100


def noise(tensor, step, index):
    """In [-0.5, 0.5), the same in C: 31-bit arithmetic."""
    word = (index * 7919 + step * 104729 + tensor * 1299709 + 1) % 2**31
    for _ in range(3):
        word = (word * 1103515245 + 12345) % 2**31
        word ^= word >> 11
    return (word % 65536 - 32768) / 65536


def gradient(kind, tensor, step, shape):
    count = 1
    for dim in shape:
        count *= dim
    size = 8.0 if step % 10 == 9 else 1.0  # steps that Adafactor's clipping is for
    if kind == "zero":
        return [0.0] * count
    if kind == "rank-one":
        columns = shape[-1]
        return [size * noise(tensor, step, i // columns) * noise(tensor + 50, step, i % columns) for i in range(count)]
    return [size * noise(tensor, step, i) for i in range(count)]


def run(make, dtype, tensors):
    parameters = []
    for t, (shape, _) in enumerate(tensors):
        count = 1
        for dim in shape:
            count *= dim
        values = torch.tensor([noise(t, -1, i) for i in range(count)], dtype=dtype).reshape(shape)
        parameters.append(torch.nn.Parameter(values))
    optimizer = make(parameters)
    for step in range(STEPS):
        for t, (shape, kind) in enumerate(tensors):
            parameters[t].grad = torch.tensor(gradient(kind, t, step, shape), dtype=dtype).reshape(shape)
        optimizer.step()
    return [p.detach().double().flatten().tolist() for p in parameters]


MATRICES = [([1, 5], "noise"), ([5, 1], "noise"), ([7, 3], "noise"), ([3, 7], "noise"), ([12, 12], "noise"),
            ([8, 17], "rank-one"), ([4, 3], "zero")]
ANY = MATRICES + [([17], "noise"), ([], "noise"), ([2, 3, 4], "noise"), ([6], "zero")]
MUON = [dict(lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True, ns_steps=5, adjust_lr_fn="match_rms_adamw"),
        dict(lr=0.01, weight_decay=0.0, momentum=0.9, nesterov=False, ns_steps=4, adjust_lr_fn="original")]
ADAFACTOR = [dict(lr=0.01, weight_decay=0.0, beta2_decay=-0.8, eps=[2.0**-23, 1e-3], d=1.0),
             dict(lr=0.2, weight_decay=0.125, beta2_decay=-0.5, eps=[2.0**-23, 0.25], d=1.5)]


def main():
    cases = []
    for options in MUON:
        def make(parameters, options=options):
            return torch.optim.Muon(parameters, **options)
        shipped = run(make, torch.float32, MATRICES)
        kept, torch.bfloat16 = torch.bfloat16, torch.float64
        exact = run(make, torch.float64, MATRICES)
        torch.bfloat16 = kept
        tensors = [dict(shape=shape, gradient=kind, float64=a, bfloat16=b)
                   for (shape, kind), a, b in zip(MATRICES, exact, shipped)]
        cases.append(dict(optimizer="muon", options=options, tensors=tensors))
    for options in ADAFACTOR:
        def make(parameters, options=options):
            return torch.optim.Adafactor(parameters, foreach=False, **options)
        exact = run(make, torch.float64, ANY)
        tensors = [dict(shape=shape, gradient=kind, float64=a) for (shape, kind), a in zip(ANY, exact)]
        cases.append(dict(optimizer="adafactor", options=options, tensors=tensors))
    lines = []
    for case in cases:
        tensors = ",\n  ".join(json.dumps(tensor) for tensor in case.pop("tensors"))
        lines.append(json.dumps(case)[:-1] + ', "tensors": [\n  ' + tensors + "]}")
    print('{"torch": "%s", "steps": %d, "cases": [\n' % (torch.__version__.split("+")[0], STEPS) + ",\n".join(lines) + "]}")


main()
