# The two commands are `make demo` and `make test`; each sets up a bare Debian 12 or 13 by itself.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

JOBS ?= $(shell env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
VENV := .deps/venv/bin
CUDA_MINUTES ?= 60
FUZZ_SECONDS ?= 60
export CTEST_PARALLEL_LEVEL ?= $(JOBS)
export PATH := $(PATH):/usr/local/cuda/bin:$(CURDIR)/.deps/cutlass/nvidia/cu13/bin

SOURCES = $(shell find coda tests examples -name '*.h' -o -name '*.c' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh')
build = cmake --preset $(1) && cmake --build --preset $(1) -j $(JOBS)

.PHONY: help setup setup-test demo test test-cpu test-asan test-tsan test-fuzz test-mutation test-training test-cuda-compile test-hf bench format format-check lint gpu-build gpu-test gpu-bench bindings plots clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "make %-18s %s\n", $$1, $$2}'

setup:  ## Install missing Debian packages, and PyPI packages into .deps/
	@scripts/setup.sh build python cuda

setup-test:  ## The same, and the real `transformers` for the test against it (0.6 GB to download)
	@scripts/setup.sh build python cuda hf

demo: setup  ## Train a small language model on real text, plot its loss, sample from it (DATA=<text file>)
	@$(call build,cpu) --target coda_cli
	@scripts/demo.sh

test: test-cpu test-asan test-cuda-compile  ## Build and run every test that needs no GPU

test-cpu: setup-test  ## The tests, optimised
	@$(call build,cpu)
	ctest --preset cpu -LE mutation

test-mutation: setup-test  ## Seed faults into the library, one at a time: the tests must catch each
	@$(call build,cpu)
	ctest --preset cpu -L mutation -V

test-training: setup  ## Train small models for 1000 steps, also by separate operations: the losses must agree (some minutes)
	@$(call build,cpu) --target coda_cli
	@$(VENV)/python tests/training/training.py coda build/cpu/coda

test-asan: setup-test  ## The tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(call build,asan)
	ctest --preset asan

test-tsan: setup  ## The tests under ThreadSanitizer, which knows OpenMP's threads by LLVM's archer
	@scripts/setup.sh clang
	@$(call build,tsan)
	ctest --preset tsan

test-fuzz: setup  ## Random calls of the interface for C by libFuzzer, under sanitizers (FUZZ_SECONDS=60)
	@scripts/setup.sh clang
	@$(call build,fuzz)
	@JOBS=$(JOBS) scripts/fuzz.sh $(FUZZ_SECONDS)

test-hf: setup-test  ## Only the comparison with the real `transformers`
	@$(call build,cpu)
	ctest --preset cpu -R '^hf\.'

test-cuda-compile: setup  ## Compile one configuration of each Hopper program, if there is an nvcc that can
	@cmake --preset cuda-reduced -DCODA_CUDA=AUTO
	@if grep -q '^CODA_CUDA_FOUND:INTERNAL=ON' build/cuda-reduced/CMakeCache.txt; then \
	  timeout --foreground $(CUDA_MINUTES)m cmake --build --preset cuda-reduced -j $(JOBS); \
	  scripts/size_report.sh build/cuda-reduced; \
	  find build/cuda-reduced -name '*.cu.o' -exec scripts/check_waits.py {} +; \
	fi

bench: setup  ## Time each program on the CPU against the bare product and the unfused chain
	@$(call build,cpu)
	build/cpu/coda bench --dtype bf16,fp32
	build/cpu/coda bench --derivatives

gpu-build: setup  ## Build everything with the Hopper backend
	@$(call build,cuda)
	@scripts/check_waits.py build/cuda/coda

gpu-test: setup  ## Run everything that tests the Hopper backend on this machine's GPU; one total at the end
	@scripts/gpu_test.sh

gpu-bench: setup  ## Measure the Hopper programs on this machine's GPU; writes results/<gpu>/
	@scripts/gpu_bench.sh

bindings: setup  ## Write the interfaces for C and PyTorch again, after a change of coda/ops/{ops,layer}.h
	@scripts/c_api.py
	@scripts/torch_api.py

plots: setup  ## Draw docs/images/*.svg and write the README's tables, from the files under results/
	@$(VENV)/python scripts/plot_results.py
	@$(VENV)/python scripts/render_results.py

format: setup  ## Lay out all sources
	@$(VENV)/clang-format -i $(SOURCES)
	@$(VENV)/ruff format -q .

format-check: setup  ## Fail if `make format` would change a file
	@$(VENV)/clang-format --dry-run -Werror $(SOURCES)
	@$(VENV)/ruff format --check -q .

lint: setup  ## clang-tidy, shellcheck and ruff
	@scripts/setup.sh lint
	@cmake --preset cpu
	@JOBS=$(JOBS) scripts/lint.sh

clean:  ## Remove what was built; .deps/ stays
	rm -rf build out
