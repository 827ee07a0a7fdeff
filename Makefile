# Each target does all its own set-up: Python 3.11 or newer, pip and make are enough.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Two threads: more of them than cores make the small networks of tests and demo many times slower.
export OMP_NUM_THREADS ?= 2
# Where PyTorch comes from, if not from pip's own index. Without a GPU its CPU build is enough, and far smaller:
# make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=

.PHONY: demo demo-quick test lint torture clean

demo: $(VENV)/ready
	$(BIN)/concurl demo

demo-quick: $(VENV)/ready
	$(BIN)/concurl demo --quick

# In two processes, as most tests leave a second core idle; who is done first takes from what the other has left.
test: $(VENV)/ready-dev lint
	$(BIN)/pytest -n 2 --dist worksteal

lint: $(VENV)/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

torture: $(VENV)/ready-dev
	$(BIN)/pytest -m slow

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[report]"
	touch $@

$(VENV)/ready-dev: $(VENV)/ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
