# Needs Python 3.11 or later, make and a package registry; `make run` does the rest.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.installed
SITE := .venv-docs/bin
SITE_READY := .venv-docs/.installed

# CPU=1 leaves CUDA out: uv takes PyTorch's builds for processors from PyTorch's own index.
CUDA := ^(nvidia-|cuda-|triton==)
ifdef CPU
PINS := build/requirements-cpu.txt
BACKEND := --torch-backend=cpu
else
PINS := requirements.txt
endif

# The notebooks start processes of one thread each, so that two cores are not asked for four.
OMP_NUM_THREADS ?= 1
export OMP_NUM_THREADS
# Two files of tests at a time, each in one process, in the order in which they are named.
SPREAD := -n 2 --dist loadfile --no-loadscope-reorder
# Without its byte code, every kernel and worker compiles PyTorch's sources anew: 12 s each.
unexport PYTHONDONTWRITEBYTECODE

.NOTPARALLEL:

.PHONY: help setup cpu-pins run test lint style pages types unit regression lab format notebooks \
  docs slides bench clean distclean

help:
	@echo 'make run         set up, execute the notebooks, print the summary (ARGS="00 --seeds 5")'
	@echo 'make test        set up, then lint, types, unit tests, regression check of the notebooks'
	@echo 'make lab         open the notebooks in JupyterLab'
	@echo 'make lint        ruff, import-linter, the rules for notebooks, pages from evidence'
	@echo 'make types       mypy'
	@echo 'make unit        the unit tests alone; make regression: the notebooks alone'
	@echo 'make format      let ruff format code and notebooks'
	@echo 'make notebooks   execute the notebooks in place, for a commit'
	@echo 'make setup CPU=1 in a fresh clone: without CUDA, 4 GB less'
	@echo 'make docs        build the site of notebooks, pages and API in build/docs'
	@echo 'make slides      a deck of each notebook in build/slides'
	@echo 'make bench       run the benchmarks'
	@echo 'make clean       remove caches; make distclean: also .venv and runs'

setup: $(READY)

# uv installs in a minute what takes pip ten; where uv cannot be had or fails, pip does it, but for
# a backend, which pip does not know. Arguments: a Python, its pins, options of uv.
define install
@$(1) -m pip install --quiet --disable-pip-version-check uv || echo '   uv cannot be had here'
@{ $(1) -m uv --version >/dev/null 2>&1 && $(1) -m uv pip install --python $(1) $(3) -r $(2); } || \
  { test -z '$(3)' && $(1) -m pip install --disable-pip-version-check -r $(2); } || \
  { test -z '$(3)' || echo 'CPU=1 needs uv and the index of PyTorch; see docs/install.md' >&2; exit 1; }
endef

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or later is needed: make PYTHON=python3.12 ...' >&2; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv
	@echo '== installing the pinned packages (once; a minute or more)'
ifdef CPU
	@$(MAKE) --no-print-directory cpu-pins
endif
	$(call install,$(BIN)/python,$(PINS),$(BACKEND))
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

cpu-pins:
	@mkdir -p build
	@grep -vE '$(CUDA)' requirements.txt > build/requirements-cpu.txt

# The longest first: two cores are then busy to the end.
run: $(READY)
	$(BIN)/mmlib run --jobs 2 $(or $(ARGS),03 02 $(basename $(notdir $(wildcard notebooks/*.ipynb))))

# What takes one core a minute or two runs beside the tests; the notebooks, which take longest,
# begin.
test: style
	@$(MAKE) --no-print-directory types pages & slow=$$!; \
	  $(BIN)/pytest --nbval-lax notebooks tests $(SPREAD); tests=$$?; wait $$slow && exit $$tests
	@echo '== all tests passed'

lint: style pages

style: $(READY)
	@echo '== lint'
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python ci/hygiene.py check
	$(BIN)/python ci/budget.py check

# The ledger and the studies, at one reading of the evidence.
pages: $(READY)
	@echo '== pages made from evidence'
	$(BIN)/python ci/generated.py check

types: $(READY)
	@echo '== types'
	$(BIN)/mypy

unit: $(READY)
	@echo '== unit tests'
	$(BIN)/pytest $(SPREAD)

# nbval executes the committed notebooks, compares the cells tagged nbval-check-output, and then
# tries each exercise with its blank and with its worked answer.
regression: $(READY)
	@echo '== regression check of the notebooks'
	$(BIN)/pytest --nbval-lax notebooks $(SPREAD)

# JupyterLab lets root open it, as in containers, only when told so.
lab: $(READY)
	$(BIN)/jupyter-lab $$(test "$$(id -u)" != 0 || echo --allow-root) --LabApp.default_url=/lab/tree/$(firstword $(sort $(wildcard notebooks/*.ipynb)))

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python ci/hygiene.py fix

notebooks: $(READY)
	$(BIN)/python ci/hygiene.py execute $(ARGS)

# What builds the site has an environment of its own, a small one without PyTorch.
$(SITE_READY): requirements-docs.txt
	@test -x $(SITE)/python || $(PYTHON) -m venv .venv-docs
	@echo '== installing what builds the site (once)'
	$(call install,$(SITE)/python,requirements-docs.txt)
	@touch $(SITE_READY)

# A broken link is an error.
docs: $(SITE_READY)
	$(SITE)/sphinx-build -q -W --keep-going -c docs/site -d build/doctrees . build/docs
	$(SITE)/python docs/site/links.py build/docs
	@echo '== build/docs/index.html; with excerpts in its search:'
	@echo '   python3 -m http.server -d build/docs 8000, then http://localhost:8000'

# reveal.js comes from the registry of npm, once, and is verified.
slides: $(READY)
	$(BIN)/python docs/site/slides.py build/slides

bench: $(READY)
	@for script in benchmarks/measure.py benchmarks/bench_*.py; do \
	  echo "== $$script"; $(BIN)/python "$$script" || exit 1; \
	done

clean:
	rm -rf build docs/api docs/answers .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find mmlib tests ci benchmarks notebooks \
	  \( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .venv-docs runs
