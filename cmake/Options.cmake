# Warnings, sanitizers and fuzzing, for every target through the interface library `ergon_flags`.
option(ERGON_WERROR "Treat warnings as errors" ON)
set(ERGON_SANITIZE "" CACHE STRING "Sanitizers, for example address,undefined or thread")
option(ERGON_FUZZ "Build the libFuzzer targets (needs clang)" OFF)

add_library(ergon_flags INTERFACE)
target_compile_options(ergon_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
  -Wpointer-arith -Wwrite-strings -Wcast-qual -Wformat=2 -ffp-contract=off
  $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>) # messages may be cut, by design
if(ERGON_WERROR)
  target_compile_options(ergon_flags INTERFACE -Werror)
endif()
target_compile_definitions(ergon_flags INTERFACE _POSIX_C_SOURCE=200809L)
if(ERGON_SANITIZE)
  target_compile_options(ergon_flags INTERFACE -fsanitize=${ERGON_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(ergon_flags INTERFACE -fsanitize=${ERGON_SANITIZE})
endif()
if(ERGON_FUZZ)
  target_compile_options(ergon_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined
                         -fno-sanitize-recover=all)
  target_link_options(ergon_flags INTERFACE -fsanitize=address,undefined)
endif()
