# Entry points. The work is in scripts/, which run from anywhere and in folders of any name.

# Not $(dir $(abspath ...)): make's own functions split names at spaces.
ROOT := $(shell dirname "$(strip $(MAKEFILE_LIST))")
SCRIPTS := "$(ROOT)"/scripts

.PHONY: help setup demo engine test test-long test-clients test-gpu bench lint docs
.NOTPARALLEL:

help:
	@echo 'make setup      check prerequisites, install torch into .venv, build target/release/warpwright'
	@echo 'make demo       set up, then optimise four small modules and show the report'
	@echo 'make engine     set up, then build target/release/warpwright-engine too: for training and --policy native'
	@echo 'make test       set up, then check and test everything that must pass'
	@echo 'make test-long  set up, then run the exhaustive tests'
	@echo "make test-clients  set up, then have others' trainers (TRL, verl, NeMo-Gym, ...) ask here"
	@echo 'make test-gpu   set up, then run the tests that need an NVIDIA GPU'
	@echo 'make bench      set up, then run the benchmarks in benches/'
	@echo 'make lint       documentation, and licences and sources of the dependencies'
	@echo 'make docs       render docs/ as a book with search: target/docs/index.html'
	@echo
	@echo 'All set up by themselves what they need. The first set-up downloads up to 2.9 GB'
	@echo '(TORCH_BACKEND=cpu make setup: about 200 MB, no GPU) and needs 8 GB of disk.'

setup:
	@$(SCRIPTS)/setup

demo:
	@$(SCRIPTS)/setup --without-program
	@$(SCRIPTS)/demo

engine:
	@$(SCRIPTS)/setup --without-program
	@$(SCRIPTS)/engine

test:
	@$(SCRIPTS)/setup --without-program
	@$(SCRIPTS)/test

test-long:
	@$(SCRIPTS)/setup --without-program
	@$(SCRIPTS)/test long

test-clients: setup
	@$(SCRIPTS)/test-clients

test-gpu:
	@$(SCRIPTS)/setup --without-program
	@$(SCRIPTS)/test gpu

bench: setup
	@$(SCRIPTS)/bench

lint:
	@$(SCRIPTS)/setup --without-program
	@$(SCRIPTS)/lint

docs:
	@$(SCRIPTS)/docs
