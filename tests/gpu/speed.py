#!/usr/bin/env python3
"""Says how fast a run was, from its rows, the first few left out.  usage: speed.py METRICS.jsonl"""
import json
import statistics
import sys

rows = [json.loads(line) for line in open(sys.argv[1])][3:]
rate = statistics.median(row["tokens_per_s"] for row in rows)
print(f"{len(rows)} steps: {rate:.0f} tokens/s in the median, loss {rows[-1]['loss']:.4f}, {max(row['peak_bytes'] for row in rows) / 2**30:.2f} GiB held")
for key in ("compute_ms", "exposed_comm_ms", "optimizer_ms", "data_ms"):
    if key in rows[-1]:
        print(f"{key}: {statistics.median(row[key] for row in rows):.2f}")
