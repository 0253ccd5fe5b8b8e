# make demo   a report on drawn signs, nothing downloaded        make test   the whole test suite
# make bench  speed against peers, side by side                  make lint   ruff, mypy, import contracts
# make fuzz   20,000 bad inputs (ROADWORTHY_FUZZ: another number)
PYTHON ?= python3
VENV   := .venv
BENCH  := .venv-bench
PIP     = -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test fuzz bench lint clean

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP) -e .
	touch $@

$(VENV)/.torch: $(VENV)/.core
	$(VENV)/bin/python $(PIP) -e '.[torch]'
	touch $@

$(VENV)/.dev: $(VENV)/.torch
	$(VENV)/bin/python $(PIP) -e '.[torch,dev]'
	touch $@

$(BENCH)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python $(PIP) -e '.[torch,backbones,bench]'
	touch $@

demo: $(VENV)/.torch
	$(VENV)/bin/roadworthy demo --out runs/demo

test: lint
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(VENV)/bin/pytest -q -n auto --dist loadfile --no-loadscope-reorder

fuzz: $(VENV)/.dev
	ROADWORTHY_FUZZ=$${ROADWORTHY_FUZZ:-20000} $(VENV)/bin/pytest -q -m fuzz tests/test_fuzz.py

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: $(BENCH)/.ready
	mkdir -p runs
	missed=0; for part in shifts chain approval mc_dropout perception monitors monitor_export patterns monitoring_stream dependability detectors until_decided; do \
		$(BENCH)/bin/python benchmarks/$$part.py --out runs/bench-$$part.json || missed=1; \
	done; exit $$missed

clean:
	rm -rf $(VENV) $(BENCH) runs
