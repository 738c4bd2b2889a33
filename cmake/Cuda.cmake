# The CUDA device, where there is a CUDA compiler. Sets `ergon_cuda`, and `ergon_cudart`: headers and
# the runtime, linked statically, which finds the driver when it is first used. So the program runs
# on machines without CUDA. All other CUDA libraries are opened at run time.
set(ergon_cuda OFF)
if(ERGON_CUDA STREQUAL "OFF")
  return()
endif()
find_program(ERGON_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
             PATH_SUFFIXES bin)
find_program(ERGON_CUDA_HOST_COMPILER NAMES g++ c++)
if(NOT ERGON_NVCC OR NOT ERGON_CUDA_HOST_COMPILER)
  if(ERGON_CUDA STREQUAL "AUTO")
    return()
  endif()
  message(FATAL_ERROR "ERGON_CUDA is ON, but there is no nvcc (in PATH, $CUDA_HOME or "
                      "/usr/local/cuda) or no C++ compiler for it")
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${ERGON_NVCC})
endif()
if(NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${ERGON_CUDA_HOST_COMPILER})
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY None)
# Programs link as C, with the runtime by name below.
set(CMAKE_CUDA_IMPLICIT_LINK_LIBRARIES "")

# Of cuDNN and NCCL only the headers are wanted here: they say how the libraries are called.
foreach(header cudnn_graph.h nccl.h)
  string(MAKE_C_IDENTIFIER ${header} found)
  find_path(ergon_${found} ${header} HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}
            ENV CUDNN_HOME ENV NCCL_HOME PATH_SUFFIXES include)
  if(NOT ergon_${found})
    if(ERGON_CUDA STREQUAL "AUTO")
      message(STATUS "CUDA device: no, for want of ${header}")
      return()
    endif()
    message(FATAL_ERROR "ERGON_CUDA is ON, but there is no ${header} (beside CUDA's headers, in "
                        "$CUDNN_HOME/include or $NCCL_HOME/include)")
  endif()
endforeach()

find_library(ERGON_CUDART_STATIC cudart_static REQUIRED
             HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES})
add_library(ergon_cudart INTERFACE)
target_include_directories(ergon_cudart SYSTEM INTERFACE
                           ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${ergon_cudnn_graph_h}
                           ${ergon_nccl_h})
target_link_libraries(ergon_cudart INTERFACE ${ERGON_CUDART_STATIC} dl rt Threads::Threads)
set(ergon_cuda ON)

# A program that runs where only the driver and C's library are: the linker takes from the archive
# what the program uses, and so only the libraries that this needs.
function(ergon_gpu_program name source)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ergon_archive)
  target_link_options(${name} PRIVATE -Wl,--as-needed)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C BUILD_RPATH "$ORIGIN"
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/gpu)
endfunction()
