#!/bin/sh
# demo.sh BUILD_FOLDER: trains a small byte-level GPT on text of this machine, on two ranks, stage 3, beside a byte 3-gram.
set -eu

build=$1
top=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
sherd=$build/sherd
job=$top/configs/demo.yaml

say() { printf '\n== %s\n' "$*"; }

# A fresh folder for every run.
mkdir -p "$top/runs"
number=1
while ! mkdir "$top/runs/demo-$number" 2>/dev/null; do number=$((number + 1)); done
run=$top/runs/demo-$number

# with_data COMMAND...: the job on this run's data.
with_data() {
    "$@" --set "data.train=$run/train.txt" --set "data.validation=$run/validation.txt" --set "run.dir=$run"
}

say 'Text of this machine'
INSTALL="$top/dev install" "$top/examples/collect_text.sh" "$run"

say 'What the plan promises'
with_data "$sherd" train "$job" --dry-run

# watch FILE: while the process named in $run/pid lives, the largest proportional memory of its children (the ranks), in kB.
watch() {
    most=0
    while sleep 1; do
        pid=$(cat "$run/pid")
        children=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null) || break
        for child in $children; do
            pss=$(awk '/^Pss_(Anon|Shmem):/ { sum += $2 } END { print sum + 0 }' "/proc/$child/smaps_rollup" 2>/dev/null) || continue
            [ "$pss" -le "$most" ] || most=$pss
        done
        echo "$most" >"$1"
    done
}

say 'Training on 2 ranks, stage 3'
began=$(date +%s)
echo 0 >"$run/pss"
echo $$ >"$run/pid"
watch "$run/pss" &
with_data sh -c 'echo $$ >"$0"; exec "$@"' "$run/pid" "$sherd" train "$job"
took=$(($(date +%s) - began))
wait

say 'A sample'
"$sherd" sample "$run/checkpoints" --prompt 'The ' --tokens 300 --temperature 0.7

say 'Results'
python3 "$top/examples/demo_report.py" "$sherd" "$build/examples/byte_trigram" "$job" "$run" "$took"
rm -f "$run/pid" "$run/pss"
