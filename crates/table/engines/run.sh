#!/usr/bin/env bash
# Measures all engines and configurations, one after the other, and prints a table: one line for each
# phase and query, one column for each measure. All figures are in figures.tsv in DIRECTORY.
#
# Variables, with their defaults:
#   ROWS=20000000       rows of about 100 bytes; a multiple of KEYS
#   KEYS=20000          entity keys
#   CACHE=268435456     bytes of each engine's cache
#   QUERIES=10000       queries of each case that is not cold
#   DIRECTORY=/var/tmp/lockstep-engines    on the disk that is measured
#
# The build needs a C++ compiler and libclang (apt-get install libclang-dev). The files of one engine
# are removed before the next one is built. Cold reads need the right to drop the operating system's
# cache, which root has; without it the phase is called "reopened". For the phase "os-warm" the files
# of an engine must fit in memory.
set -euo pipefail
cd "$(dirname "$0")"

ROWS=${ROWS:-20000000}
KEYS=${KEYS:-20000}
CACHE=${CACHE:-268435456}
QUERIES=${QUERIES:-10000}
DIRECTORY=${DIRECTORY:-/var/tmp/lockstep-engines}
# The processor's CRC32C and AVX2 for all engines: RocksDB is compiled for the processor that Rust is.
export RUSTFLAGS=${RUSTFLAGS:--C target-cpu=x86-64-v3}
# Not in the repository, which ignores a target folder at its root only.
export CARGO_TARGET_DIR=${ENGINES_TARGET_DIR:-$HOME/.cache/lockstep/engines}

cargo build --release
program=$CARGO_TARGET_DIR/release/engines
mkdir -p "$DIRECTORY"
figures=$DIRECTORY/figures.tsv
: > "$figures"

# measure COMMAND ENGINE CONFIGURATION FOLDER
measure() {
    echo "$1 $2 $3" >&2
    "$program" "$1" --engine "$2" --configuration "$3" --directory "$DIRECTORY/$4" \
        --rows "$ROWS" --keys "$KEYS" --cache "$CACHE" --queries "$QUERIES" >> "$figures"
    # What was written must be on the disk before the cache is dropped.
    sync
}

remove() {
    rm -rf "${DIRECTORY:?}/$1"
}

for engine in rocksdb lsm-tree; do
    for configuration in uncompressed default-compression; do
        remove "$engine"
        measure build "$engine" "$configuration" "$engine"
        measure read "$engine" "$configuration" "$engine"
        remove "$engine"
    done
done
remove runs
measure build runs rows runs
measure read runs rows runs
measure read runs records runs
remove runs

# Every engine has the same sum for the same queries.
awk -F '\t' '
    $6 == "amount" {
        queries = $3 FS $4 FS $5
        if (queries in amounts && amounts[queries] != $7) {
            print "different sums: " queries > "/dev/stderr"
            differs = 1
        }
        amounts[queries] = $7
    }
    END { exit differs }
' "$figures"

awk -F '\t' '
    $1 == "engine" { header = $1 FS $2 FS $3 FS $4 FS $5; next }
    {
        line = $1 FS $2 FS $3 FS $4 FS $5
        if (!(line in is_line)) { is_line[line] = 1; lines[++line_count] = line }
        if (!($6 in is_measure)) { is_measure[$6] = 1; measures[++measure_count] = $6 }
        values[line, $6] = $7
    }
    END {
        for (m = 1; m <= measure_count; m++) header = header FS measures[m]
        print header
        for (l = 1; l <= line_count; l++) {
            line = lines[l]
            for (m = 1; m <= measure_count; m++) {
                at = lines[l] SUBSEP measures[m]
                line = line FS ((at in values) ? values[at] : "-")
            }
            print line
        }
    }
' "$figures" | column -t -s $'\t'
