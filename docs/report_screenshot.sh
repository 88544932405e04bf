#!/bin/sh
# report_screenshot.sh SHERD RUN: makes docs/report.png, the top of the report of a run, with a headless Chromium.
#
# The picture in the repository is of configs/demo.yaml with a validation every 200 steps and a save every 400, as ./dev demo starts it.
set -eu

sherd=${1:?usage: report_screenshot.sh SHERD RUN}
run=${2:?usage: report_screenshot.sh SHERD RUN}
folder=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
command -v chromium >/dev/null || { echo "chromium is missing: ./dev install chromium" >&2; exit 1; }

page=$(mktemp -d)
trap 'rm -rf "$page"' EXIT
"$sherd" report "$run" -o "$page/report.html"
# As root, as in a container, Chromium runs only without its sandbox; the page is ours.
sandbox=
[ "$(id -u)" -ne 0 ] || sandbox=--no-sandbox
# shellcheck disable=SC2086 # nothing, or one option
chromium --headless $sandbox --disable-gpu --hide-scrollbars --blink-settings=preferredColorScheme=1 --window-size=1100,1120 \
    --screenshot="$folder/report.png" "file://$page/report.html" 2>/dev/null
ls -l "$folder/report.png"
