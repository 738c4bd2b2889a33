# A thin door to CMake: the two commands of the README and a few more.
PRESET ?= release
BUILD := build/$(PRESET)

.PHONY: all check demo bench install clean

all: build/.packages
	cmake --preset $(PRESET) >build/configure.log || (cat build/configure.log; false)
	cmake --build --preset $(PRESET)

build/.packages: scripts/install-packages.sh
	@mkdir -p build
	sh scripts/install-packages.sh
	@touch $@

check: all
	ctest --preset $(PRESET)

bench: all
	cmake --build --preset $(PRESET) --target benches
	sh scripts/bench.sh $(BUILD)

install: all
	cmake --install $(BUILD)

clean:
	rm -rf build
