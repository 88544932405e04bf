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
trainer='' watcher=''

# Stopped in the middle (Ctrl-C): what was started ends, and the unfinished folder goes. $1: the signal's number.
interrupted() {
    trap '' INT TERM HUP
    [ -z "$trainer" ] || kill -TERM "$trainer" 2>/dev/null || true
    [ -z "$watcher" ] || kill -TERM "$watcher" 2>/dev/null || true
    wait
    rm -rf "$run"
    printf '\ndemo: stopped; %s is removed\n' "$run" >&2
    exit $((128 + $1))
}
trap 'interrupted 2' INT
trap 'interrupted 15' TERM
trap 'interrupted 1' HUP

# with_data COMMAND...: the job on this run's data.
with_data() {
    "$@" --set "data.train=$run/train.txt" --set "data.validation=$run/validation.txt" --set "run.dir=$run"
}

say 'Text of this machine'
INSTALL="$top/dev install" "$top/examples/collect_text.sh" "$run"

say 'What the plan promises'
with_data "$sherd" train "$job" --dry-run

# watch PID: while that process lives, $run/pss has the largest proportional memory its children (the ranks) have had, in kB.
watch() {
    most=0
    while sleep 1 && children=$(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        for child in $children; do
            pss=$(awk '/^Pss_(Anon|Shmem):/ { sum += $2 } END { print sum + 0 }' "/proc/$child/smaps_rollup" 2>/dev/null) || continue
            [ "$pss" -le "$most" ] || most=$pss
        done
        echo "$most" >"$run/pss"
    done
}

say 'Training on 2 ranks, stage 3'
began=$(date +%s)
echo 0 >"$run/pss"
(with_data exec "$sherd" train "$job") &
trainer=$!
watch $trainer &
watcher=$!
wait $trainer
took=$(($(date +%s) - began))
trainer=''
wait $watcher
watcher=''

say 'A sample'
"$sherd" sample "$run/checkpoints" --prompt 'The ' --tokens 300 --temperature 0.7

say 'Results'
python3 "$top/examples/demo_report.py" "$sherd" "$build/examples/byte_trigram" "$job" "$run" "$took"
rm -f "$run/pss"
