# A thin door to CMake: the two commands of the README and a few more.
#
#   make demo      builds, then optimizes the first example; says which page to open
#   make check     builds and runs every test
#   make train-demo  trains a tiny model, on a GPU or on the CPU
#   make live-demo    schedules twelve jobs on a Slurm of this host with fake GPUs; three minutes
#   make live-check   days of jobs on such a Slurm against the simulator, all policies; an hour
#   make train-bench  measures training beside PyTorch; needs a GPU and PyTorch
#   make bench     measures speed and quality, each program prints its table; under ten minutes
#   make research  builds the replays of published evaluations (research/README.md)
#   make gpu-check runs the tests and benches that need a GPU; the log is build/gpu-check.log
#   make install   into PREFIX (and below DESTDIR)
#   make deb       writes Debian packages into build/release/packages
#   make dist      writes the committed source as build/dist/ergon-VERSION.tar.gz
#
# All of them first install the Debian packages that are missing; the two live ones also Slurm's, as
# root only, and none of its daemons starts by that. PRESET chooses a build:
# release, debug, asan or tsan.
PRESET ?= release
PREFIX ?= /usr/local
BUILD := build/$(PRESET)

.PHONY: all packages check demo train-demo live-demo live-check train-bench bench research gpu-check install deb dist clean

all: packages
	@log=$$(cmake --preset $(PRESET) 2>&1) || { echo "$$log"; false; }
	cmake --build --preset $(PRESET)

packages:
	@mkdir -p build && test -w build || \
		{ echo "make: the folder build cannot be written to; copy the source to where it can"; false; }
	@sh scripts/install-packages.sh

# In slots: a test takes two, one that waits takes one (tests/CMakeLists.txt). Two more than the
# cores need keep these busy.
check: all
	ctest --preset $(PRESET) --parallel $$((2 * $$(nproc) + 2))

dist:
	@sh scripts/dist.sh build/dist

research: all
	cmake --build --preset $(PRESET) --target research

demo: all
	$(BUILD)/ergon optimize examples/quickstart.yaml -o build/demo
	@echo "Now open build/demo/report.html in a browser."

train-demo: all
	sh scripts/train-demo.sh $(BUILD)/ergon

live-demo: all
	@bash scripts/live-demo.sh $(BUILD)/ergon $(BUILD)/tests/fake_trainer

live-check: all
	@sh scripts/install-packages.sh live
	@sh scripts/live-check.sh $(BUILD)/tests/test_live_fidelity

train-bench: all
	sh scripts/train-bench.sh $(BUILD)/ergon

bench: all
	@cmake --build --preset $(PRESET) --target research
	sh scripts/bench.sh $(BUILD)/bench
	sh scripts/bench.sh $(BUILD)/research arena replay

# The status of the checks, not of tee.
gpu-check: all
	@(sh scripts/gpu-check.sh $(BUILD)/gpu 2>&1; echo $$? >build/gpu-check.status) | \
		tee build/gpu-check.log; exit $$(cat build/gpu-check.status)

install: all
	cmake --install $(BUILD) --prefix "$(PREFIX)"

deb: all
	cd $(BUILD) && cpack

clean:
	rm -rf build
