# The two commands that matter are `make demo` and `make test`. Each installs what it needs into
# .venv and builds into CARGO_TARGET_DIR, which they share, so that nothing is compiled twice.

CARGO_TARGET_DIR ?= $(HOME)/.cache/lockstep/target
export CARGO_TARGET_DIR
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WHEELS := $(CARGO_TARGET_DIR)/wheels

.PHONY: help demo test test-rust test-python nightly lint wheel install bench clean

help:
	@echo "make demo   builds Lockstep and runs the demonstration on real flights"
	@echo "make test   runs every test"
	@echo "make nightly  the long forms of the generated tests: DuckDB, parity, fuzzing"
	@echo "make lint   checks format and lints"
	@echo "make wheel  builds the Python wheel into $(WHEELS)"

demo: install
	$(BIN)/lockstep demo flights

test: test-rust test-python

test-rust:
	cargo test --locked --workspace

test-python: install
	$(BIN)/python -m pytest

# SEED=N draws another run of everything that is drawn.
SEED ?= 1
nightly: install
	cd python/tests && ../../$(BIN)/python -m differential --queries 100000 --seed $(SEED)
	cargo xtask parity --cases 5000
	cargo xtask l3 --cases 20000 --seed $(SEED)
	cargo xtask fuzz --seconds 600 --seed $(SEED)

lint: $(VENV)/.tools
	cargo xtask lint
	$(BIN)/ruff check python
	$(BIN)/ruff format --check python
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --locked check; \
	else echo "cargo-deny is not installed: licences and advisories were not checked"; fi

wheel: $(VENV)/.tools
	@rm -f $(WHEELS)/lockstep-*.whl
	$(BIN)/maturin build --locked --profile dev --strip --out $(WHEELS)

install: wheel
	$(BIN)/pip install --quiet --force-reinstall --no-deps $(WHEELS)/lockstep-*.whl

bench:
	@echo "There are no benchmarks yet." >&2; exit 2

$(VENV)/.tools: python/requirements.txt
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv is missing: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check -r python/requirements.txt
	@touch $@

clean:
	rm -rf $(VENV)
