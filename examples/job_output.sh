#!/usr/bin/env bash
# The output of a job as a stream, with nothing but a shell and curl.
#
#   examples/job_output.sh run  build-17 make all      runs `make all`; each line it prints is appended, then its exit code
#   examples/job_output.sh tail build-17 [OFFSET]      prints what there is and what comes, until the job has ended
#
# Every line is sent with a number of its own (Producer-Seq), so it may be sent as often as it takes: a line that arrived
# twice is taken once. The stream lives for an hour after its last use. HEADWATER_URL says where the server is.
set -euo pipefail

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
verb=$1 name=$2
shift 2
stream=${HEADWATER_URL:-http://127.0.0.1:4437}/v1/stream/jobs/$name
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Asks until there is an answer. A refusal (curl's code 22) is one; `--retry` has waited for a busy server before it.
ask() {
    local attempt code
    for attempt in 1 2 3 4 5 6 7 8; do
        curl -fsS --retry 5 --retry-connrefused "$@" && return
        code=$?
        [ $code -ne 22 ] || break
        sleep "$attempt"
    done
    return $code
}

# Another epoch for each run, so that no line of it can be taken for one of a run before.
epoch=$(date +%s)$(printf '%05d' $RANDOM) seq=0
send() { # LINE [HEADER]
    printf '%s\n' "$1" >"$scratch/line"
    ask -X POST "$stream" -H 'Content-Type: text/plain' --data-binary "@$scratch/line" \
        -H 'Producer-Id: job' -H "Producer-Epoch: $epoch" -H "Producer-Seq: $seq" ${2:+-H "$2"}
    seq=$((seq + 1))
}

run() {
    ask -X PUT "$stream" -H 'Content-Type: text/plain' -H 'Stream-TTL: 3600'
    while IFS= read -r line || [ -n "$line" ]; do
        send "$line"
    done < <(set +e; "$@" 2>&1; echo $? >"$scratch/code")
    # The last line and the end are one request: whoever sees the one sees the other.
    send "exit $(cat "$scratch/code")" 'Stream-Closed: true'
    exit "$(cat "$scratch/code")"
}

header() { tr -d '\r' <"$scratch/head" | sed -n "s/^$1: //Ip" | tail -n 1; }

follow() {
    local offset=${1:--1}
    while true; do
        # Into a file, since half a page that is asked for again would be printed twice.
        ask -D "$scratch/head" -o "$scratch/page" "$stream?offset=$offset&live=long-poll"
        offset=$(header Stream-Next-Offset)
        if [ -e "$scratch/page" ]; then cat "$scratch/page"; rm "$scratch/page"; fi
        [ "$(header Stream-Closed)" != true ] || break
    done
    echo "-- the end, at $offset" >&2
}

case $verb in
    run) [ $# -ge 1 ] || usage; run "$@" ;;
    tail) follow "$@" ;;
    *) usage ;;
esac
