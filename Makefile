# On a fresh machine with Python 3.11+ and make: `make demo` shows the main job, `make test` runs every check.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export OPENBLAS_NUM_THREADS = 1
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup demo test lint types bench bench-against same proof fuzz fuzz-web budget docs docs-site site ns3 ns3-runs clean

setup: $(STAMP)

# uv is used where it is installed; plain pip does the same. Bytecode is compiled now so that commands start fast.
$(STAMP): pyproject.toml
	@if command -v uv >/dev/null 2>&1; then \
		uv venv -q --allow-existing --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV) && \
		uv pip install -q --python $(BIN)/python --compile-bytecode -e '.[dev]'; \
	else \
		$(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -q --disable-pip-version-check --compile -e '.[dev]'; \
	fi
	@$(BIN)/python -m compileall -q strata
	@touch $(STAMP)

demo: setup
	$(BIN)/strata predict --model deepseek-v3 --system 8xb200 --batch 64 --input 1024 --output 1024 --explain
	@echo
	$(BIN)/strata sweep --model deepseek-v3 --system 256xstack-ref --phase decode --input 8192 --plan tp=16,dp=16,ep=256 \
		--vary chip.stack.layers=4,5,6,7,8,10,12 --vary batch=16,32,64,128 --report out/demo.html

test: setup lint types
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check strata studies tests benchmarks docs/scripts
	$(BIN)/ruff format --check strata studies tests benchmarks docs/scripts

types: setup
	$(BIN)/mypy

# Against ns-3 itself, too, where it is installed.
bench: setup
	@if $(NS3_HERE); then $(MAKE) --no-print-directory $(NS3); fi
	$(BIN)/python -m benchmarks.run

# This tree beside another commit, in turns of one run: make bench-against REV=HEAD~1
bench-against: setup
	$(BIN)/python benchmarks/against.py $(REV)

# Whether answers are those of another commit, of the docs' commands, studies and measured rows alike: make same REV=HEAD~1
same: setup
	$(BIN)/python benchmarks/same_answers.py $(REV) $(KINDS)

# What takes too long for `make test`: exact searches against brute force, searches killed at random moments and resumed, and every
# fitted number made anew.
proof: setup
	$(BIN)/strata calibrate --all --check
	STRATA_PROOF=1 $(BIN)/python -m pytest tests/test_studies.py -k next-technology
	$(BIN)/python tests/search/proof.py 50
	$(BIN)/python tests/search/kills.py 20
	$(BIN)/python tests/search/kills.py 20 --sampler exact
	$(BIN)/python tests/search/kills.py 20 --sampler nsga2
	$(BIN)/python tests/search/kills.py 20 --command

# Bad inputs: each ends with exit code 0 or 2 and one line, in 20 s and 4 GB. Another seed makes other ones: make fuzz SEED=2
CASES ?= 100000
SEED ?= 1
fuzz: setup
	$(BIN)/python tests/fuzz/fuzz.py --cases $(CASES) --seed $(SEED)

# Requests made from the page's OpenAPI schema, right and wrong ones: no fault of ours. make fuzz-web CASES=2000 SEED=2
fuzz-web: CASES = 2000
fuzz-web: setup
	$(BIN)/python tests/app/web/schema_fuzz.py --cases $(CASES) --seed $(SEED)

# Lowers tests/budget.toml to what the tree has now. It raises nothing and names what is above.
budget: setup
	$(BIN)/python tests/test_budget.py

# Examples in the docs are run and their output refreshed; equations, the module map and the picture are written anew.
docs: setup
	$(BIN)/python tests/test_docs.py

# The docs as a site in out/site; `python -m http.server -d out/site` shows it. Nothing is fetched.
docs-site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

site: docs-site

# The packet simulator, a program of its own (GPLv2): build it and repeat some of the stored runs; `ns3-runs` does all anew.
NS3 := out/ns3/collective
NS3_HERE := echo '\#include "ns3/core-module.h"' | $(CXX) -E -x c++ - >/dev/null 2>&1

$(NS3): validation/ns3/collective.cc
	@mkdir -p $(@D)
	$(CXX) -O2 -std=c++17 $< -o $@ -lns3-core -lns3-network -lns3-point-to-point

ns3:
	@if $(NS3_HERE); then $(MAKE) --no-print-directory $(NS3) $(STAMP) && $(PYTHON) -B validation/ns3/runs.py $(NS3) --check validation/ns3/runs.csv && \
		$(BIN)/python -B validation/ns3/schedules.py $(NS3) --check validation/ns3/schedules.csv; \
	else echo "ns3 skipped: ns-3 is not installed (Debian: apt-get install ns3 libns3-dev)"; fi

ns3-runs: $(NS3) $(STAMP)
	$(PYTHON) -B validation/ns3/runs.py $(NS3) > out/ns3/runs.csv && mv out/ns3/runs.csv validation/ns3/runs.csv
	$(BIN)/python -B validation/ns3/schedules.py $(NS3) > out/ns3/schedules.csv && mv out/ns3/schedules.csv validation/ns3/schedules.csv

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis
