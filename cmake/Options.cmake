# Warnings, sanitizers and fuzzing, for every target through the interface library `ergon_flags`.
option(ERGON_WERROR "Treat warnings as errors" ON)
set(ERGON_SANITIZE "" CACHE STRING "Sanitizers, for example address,undefined or thread")
option(ERGON_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
set(ERGON_CUDA AUTO CACHE STRING "The CUDA device: ON, OFF, or AUTO = where nvcc is found")
set_property(CACHE ERGON_CUDA PROPERTY STRINGS AUTO ON OFF)

add_library(ergon_flags INTERFACE)
set(c_options
  -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
  -Wpointer-arith -Wwrite-strings -Wcast-qual -Wformat=2 -ffp-contract=off
  $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>) # messages may be cut, by design
# Kernels are C++ to the compiler, but use nothing of its run-time library: programs link as C. (The
# only statics are those in which nvcc's code for <<<>>> keeps what the CUDA runtime answered.)
set(cuda_options -Xcompiler=-Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics)
if(ERGON_WERROR)
  list(APPEND c_options -Werror)
  list(APPEND cuda_options -Werror=all-warnings)
endif()
target_compile_options(ergon_flags INTERFACE "$<$<COMPILE_LANGUAGE:C>:${c_options}>"
                       "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_options}>")
target_compile_definitions(ergon_flags INTERFACE _POSIX_C_SOURCE=200809L)
if(ERGON_SANITIZE)
  target_compile_options(ergon_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:C>:-fsanitize=${ERGON_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  target_link_options(ergon_flags INTERFACE -fsanitize=${ERGON_SANITIZE})
endif()
if(ERGON_FUZZ)
  target_compile_options(ergon_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link,address,undefined;-fno-sanitize-recover=all>")
  target_link_options(ergon_flags INTERFACE -fsanitize=address,undefined)
endif()
