# The two commands that matter are `make demo` and `make test`. Each installs what it needs into
# .venv and builds into CARGO_TARGET_DIR, which they share, so that nothing is compiled twice.

CARGO_TARGET_DIR ?= $(HOME)/.cache/lockstep/target
export CARGO_TARGET_DIR
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WHEELS := $(CARGO_TARGET_DIR)/wheels
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
# Runs a command, and prints what it does and how much time is left.
STAGE := @$(PYTHON) python/build/stage.py
DENY_VERSION := 0.20.2
DENY := $(CARGO_TARGET_DIR)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny

.PHONY: help demo examples test test-rust test-python nightly nightly-differential nightly-generated nightly-training advisories lint docs wheel install release release-try bench clean

help:
	@echo "make demo   builds Lockstep and runs the demonstration on real flights"
	@echo "make examples  runs the examples: card fraud, recommendation, trip duration, streaming"
	@echo "make test   runs every test"
	@echo "make nightly  the long forms of the generated tests: DuckDB, parity, L3, crashes, fuzzing, loom, Miri"
	@echo "make lint   checks format and lints"
	@echo "make docs   builds the manual into site/; a broken link or a page outside the navigation fails"
	@echo "make wheel  builds the Python wheel into $(WHEELS)"
	@echo "make release  builds the wheel and the binary that users get, into $(DIST)"
	@echo "make release-try  runs them on a bare Debian without a compiler; needs root and debootstrap"
	@echo "make bench  measures Lockstep beside DuckDB, MariaDB, PostgreSQL, Redis and SQLite"

demo: install
	$(STAGE) "demonstration" "less than a minute" -- $(BIN)/lockstep demo flights

examples: install $(VENV)/.test
	@for name in card_fraud recommendation trip_duration streaming; do \
	    $(BIN)/python examples/$$name/$$name.py || exit 1; \
	done

test: test-rust test-python

test-rust:
	cargo xtask test
	cargo test --locked --workspace --doc

test-python: install $(VENV)/.test $(VENV)/.docs
	$(BIN)/python python/build/pytest_parts.py

# SEED=N draws another run of everything that is drawn.
SEED ?= 1
# Two halves side by side, each of which runs one thing at a time.
nightly: install $(VENV)/.test
	$(MAKE) --jobs 2 --output-sync=line nightly-differential nightly-generated

nightly-differential: $(VENV)/.test
	cd python/tests && ../../$(BIN)/python -m differential --queries 100000 --seed $(SEED)

nightly-generated:
	cargo xtask conformance
	cargo xtask parity --cases 5000
	cargo xtask following --cases 5000
	cargo xtask streams --cases 5000 --seed $(SEED)
	cargo xtask l3 --cases 20000 --seed $(SEED)
	cargo xtask long-windows --cases 6000 --seed $(SEED)
	cargo run --locked --package lockstep-crash -- kill --cycles 2000 --seed $(SEED)
	cargo run --locked --package lockstep-crash -- failpoints --seed $(SEED)
	cargo run --locked --package lockstep-crash -- streams --cycles 1000 --seed $(SEED)
	cargo run --locked --package lockstep-crash -- kafka --cycles 500 --seed $(SEED)
	cargo run --locked --package lockstep-crash -- files --cycles 500 --seed $(SEED)
	cargo run --locked --package lockstep-crash -- group --cycles 300 --seed $(SEED)
	cargo run --locked --package lockstep-crash -- replay --cases 5000 --seed $(SEED)
	cargo run --locked --package lockstep-crash -- soak --seconds 1800 --kill-ms-max 60000 --seed $(SEED)
	for canary in panic stack memory hang; do cargo xtask fuzz --canary $$canary || exit 1; done
	cargo xtask fuzz --seconds 600 --seed $(SEED)
	for target in log checkpoint manifest; do \
	    cargo xtask fuzz --target $$target --seconds 600 --seed $(SEED) || exit 1; done
	for target in http postgres flight; do \
	    cargo xtask fuzz --target $$target --canary bug || exit 1; \
	    cargo xtask fuzz --target $$target --seconds 600 --seed $(SEED) || exit 1; done
	cargo xtask sim --workloads 60 --seed $(SEED)
	cargo xtask model
	cargo xtask miri

# Spark, and readers of training sets that are too large for every run; needs Java 17.
nightly-training: install $(VENV)/.test
	$(PIP) -r python/requirements-training.txt
	LOCKSTEP_SPARK_QUERIES=200 LOCKSTEP_SPARK_SEED=$(SEED) LOCKSTEP_SPARK_CASES=all \
	    $(BIN)/python -m pytest -s python/tests/test_spark.py \
	    python/tests/test_spark_conformance.py python/tests/test_training.py

# Advisories come from the network; `lint` checks the rest.
advisories: $(DENY)
	$(DENY) --locked check advisories

lint: $(VENV)/.test $(DENY)
	cargo xtask lint
	$(BIN)/ruff check python release examples
	$(BIN)/ruff format --check python release examples
	$(DENY) --locked --log-level error check bans licenses sources

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/.test: python/requirements-test.txt $(VENV)/.tools
	$(PIP) -r python/requirements-test.txt
	@touch $@

$(VENV)/.docs: python/requirements-docs.txt $(VENV)/.tools
	$(PIP) -r python/requirements-docs.txt
	@touch $@

wheel: $(VENV)/.tools
	@rm -f $(WHEELS)/lockstep*.whl
	$(STAGE) "wheel" "half an hour on two cores, from nothing; seconds when nothing has changed" -- \
	    $(BIN)/maturin build --locked --profile dev --strip --out $(WHEELS)

install: wheel
	$(BIN)/pip install --quiet --force-reinstall --no-deps $(WHEELS)/lockstep*.whl

# What users get: optimised across crates, and linked so that it runs on any Linux with a glibc of
# $(GLIBC) or newer; zig brings the old glibc to link with. Takes much longer than `make wheel`.
GLIBC := 2.17
TARGET := $(shell uname -m)-unknown-linux-gnu
DIST := dist
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
BINARY = lockstep-$(VERSION)-$(shell uname -m)-linux
LICENCES := python/lockstep/THIRD_PARTY_LICENCES.txt
BUILT := $(CARGO_TARGET_DIR)/$(TARGET)/release

# One set of tools for the wheel and the binaries; see release/zig-tools.
ZIG := $(CARGO_TARGET_DIR)/zig-$(GLIBC)
TARGET_NAME := $(subst -,_,$(TARGET))
RELEASE_ENV = PATH="$(CURDIR)/$(BIN):$$PATH" \
    CARGO_TARGET_$(shell echo $(TARGET_NAME) | tr a-z A-Z)_LINKER=$(ZIG)/cc \
    CC_$(TARGET_NAME)=$(ZIG)/cc CXX_$(TARGET_NAME)=$(ZIG)/c++ \
    AR_$(TARGET_NAME)=$(ZIG)/ar RANLIB_$(TARGET_NAME)=$(ZIG)/ranlib
# With the wheel's package selected too, libraries have the features that they have there, so that
# they are not compiled again.
RELEASE_BUILD = $(RELEASE_ENV) cargo build --locked --release --target $(TARGET) \
    --package lockstep-python

release: $(VENV)/.release $(ZIG)/cc
	rm -rf $(DIST)
	mkdir -p $(DIST)/$(BINARY)
	$(BIN)/python release/licences.py --target $(TARGET) $(LICENCES)
	$(RELEASE_ENV) maturin build --locked --release --target $(TARGET) \
	    --compatibility manylinux_$(subst .,_,$(GLIBC)) --out $(DIST)
	$(RELEASE_BUILD) --package lockstep-cli --bin lockstep
	cp $(BUILT)/lockstep LICENSE README.md $(LICENCES) $(DIST)/$(BINARY)
	tar -C $(DIST) -czf $(DIST)/$(BINARY).tar.gz $(BINARY)
	rm -r $(DIST)/$(BINARY)
	cd $(DIST) && sha256sum * > SHA256SUMS
	ls -l $(DIST)

release-try:
	release/try $(DIST)

$(VENV)/.release: release/requirements.txt $(VENV)/.tools
	$(PIP) -r release/requirements.txt
	@touch $@

$(ZIG)/cc: release/zig-tools
	release/zig-tools $(ZIG) $(GLIBC)
	@touch $@

# Measures the release build. Quick by default: each workload takes less than a minute. FULL=1
# repeats everything five times, with more data and the sweeps, and rewrites the tables of
# docs/benchmarks/results.md. PROFILE=dev measures the build of the tests.
WORKLOADS ?= M1 M2 M3 M4 M5 M6 M8 M9 M10 M11 M13 M14 M15 M16 M17
FULL ?=
ifeq ($(FULL),)
BENCH := --quick --out $(CARGO_TARGET_DIR)/bench-results
else
BENCH := --runs 5 --sweep --out bench/results
endif

PROFILE ?= release
ifeq ($(PROFILE),release)
BENCH_PROGRAM := $(BUILT)/lockstep-bench
BENCH_TOOLS := $(VENV)/.release $(ZIG)/cc
else
BENCH_PROGRAM := $(CARGO_TARGET_DIR)/debug/lockstep-bench
BENCH_TOOLS :=
endif

bench: $(BENCH_TOOLS)
ifeq ($(PROFILE),release)
	$(RELEASE_BUILD) --package lockstep-bench --bin lockstep-bench
else
	cargo build --locked --package lockstep-bench
endif
	$(BENCH_PROGRAM) --install
	@for workload in $(WORKLOADS); do \
	    $(BENCH_PROGRAM) $$workload $(BENCH) || exit 1; \
	done
ifneq ($(FULL),)
	$(BENCH_PROGRAM) --out bench/results --publish docs/benchmarks/results.md
endif

# Built once, outside the target directory, whose profile and features it does not share; not optimised, since
# it runs for a second.
$(DENY):
	env -u CARGO_TARGET_DIR CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
	    CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 cargo install --locked --quiet --version $(DENY_VERSION) \
	    --root $(CARGO_TARGET_DIR)/tools/cargo-deny-$(DENY_VERSION) cargo-deny

$(VENV)/.tools: python/requirements.txt
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv is missing: apt-get install python3-venv" >&2; exit 1; }
	$(STAGE) "Python packages" "about a minute" -- $(PIP) -r python/requirements.txt
	@touch $@

clean:
	rm -rf $(VENV)
