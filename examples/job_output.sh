#!/usr/bin/env bash
# The output of a job as a stream, with nothing but a shell and curl.
#
#   examples/job_output.sh run  build-17 make all      runs `make all`; appends each line that it prints, then its exit code
#   examples/job_output.sh tail build-17 [OFFSET]      prints all lines so far and each new one, until the job has ended
#
# Each line is sent with a sequence number (Producer-Seq), so that a line that is sent twice is stored once. The stream
# is deleted an hour after its last use. HEADWATER_URL is the URL of the server.
set -euo pipefail

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
verb=$1 name=$2
shift 2
stream=${HEADWATER_URL:-http://127.0.0.1:4437}/v1/stream/jobs/$name
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Sends a request until it is answered. A refusal (curl's code 22) is an answer; `--retry` waits for a busy server first.
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

# A new epoch for each run, so that no line is mistaken for a duplicate from an earlier run.
epoch=$(date +%s)$(printf '%05d' $RANDOM) seq=0
send() { # LINE [HEADER]
    printf '%s\n' "$1" >"$scratch/line"
    ask -X POST "$stream" -H 'Content-Type: text/plain' --data-binary "@$scratch/line" \
        -H 'Producer-Id: job' -H "Producer-Epoch: $epoch" -H "Producer-Seq: $seq" ${2:+-H "$2"}
    seq=$((seq + 1))
}

run() {
    local status
    # A job is not run without a stream for its output. 409 says that the stream exists and is closed.
    if ! status=$(curl -fsS --retry 2 --retry-connrefused -o "$scratch/answer" -w '%{http_code}' -X PUT "$stream" \
        -H 'Content-Type: text/plain' -H 'Stream-TTL: 3600' 2>"$scratch/problem"); then
        case $status in
            409) echo "Error: job $name has run already; read it with '$0 tail $name', or choose another name." >&2 ;;
            *) echo "Error: $stream cannot be created; is a server running? ($(tail -n 1 "$scratch/problem"))" >&2 ;;
        esac
        exit 1
    fi
    while IFS= read -r line || [ -n "$line" ]; do
        send "$line"
    done < <(set +e; "$@" 2>&1; echo $? >"$scratch/code")
    # One request for the last line and the end, so that a reader sees both or neither.
    send "exit $(cat "$scratch/code")" 'Stream-Closed: true'
    exit "$(cat "$scratch/code")"
}

header() { tr -d '\r' <"$scratch/head" | sed -n "s/^$1: //Ip" | tail -n 1; }

follow() {
    local offset=${1:--1}
    while true; do
        # Into a file: a page that broke off and is requested again must not be printed twice.
        if ! ask -D "$scratch/head" -o "$scratch/page" "$stream?offset=$offset&live=long-poll"; then
            echo "Error: $stream cannot be read; run the job first, or check its name and HEADWATER_URL." >&2
            exit 1
        fi
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
