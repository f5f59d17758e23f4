#!/usr/bin/env bash
# The main job on this machine: search rmsnorm's space, then read back the board and decide it all again from the log.
#
# It runs on the embedded default, bubblewrap, and on the CPU (Triton's interpreter) where there is no GPU. Ending without a
# winner (exit 2) is an honest end of a search and not a failure of the demo. Variables: ASSAY_HOME, DEMO_CANDIDATES.
set -euo pipefail
cd "$(dirname "$0")/.."
assay=.venv/bin/assay

show() {
    printf '\n$ assay %s\n' "$*"
    "$assay" "$@"
}

# on a CPU, blocks of one process vary by tens of per cent with whatever else the cores do, for every arm alike: the paired
# ratio bears that, the default limit on variation (10 %) does not
if [ -e /dev/nvidiactl ]; then device=(--device cuda --dtype fp16); else device=(--device cpu --dtype fp32 --max-cv 0.3); fi
result=$(mktemp)
trap 'rm -f "$result"' EXIT

search=(optimize rmsnorm "${device[@]}" --engine bwrap --strategy grid --max-candidates "${DEMO_CANDIDATES:-4}" --seed 1)
printf '$ assay %s\n' "${search[*]}"
code=0
"$assay" "${search[@]}" >"$result" || code=$?
case $code in
0) ;;
2) echo "(exit 2, finished without a winner: nothing was better beyond doubt on this machine)" ;;
*) exit "$code" ;;
esac
episode=$(.venv/bin/python -c 'import json, sys; print(json.load(open(sys.argv[1]))["episode"])' "$result")
echo "(stdout was one JSON object of $(wc -l <"$result") lines, kept beside the winner in the episode's folder under runs/)"
show show "$episode"
show leaderboard
show replay "$episode"
show log verify
