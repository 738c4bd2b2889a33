# Kernels of GPUs are recorded by CUPTI, whose library is opened at run time; its header, of CUDA 13 or
# newer, says how records lie in memory. Sets `ergon_cupti_include`; without it ergon records none.
find_path(ergon_cupti_h cupti.h HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ENV CUDA_HOME
          ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES include extras/CUPTI/include)
set(ergon_cupti_include "")
if(ergon_cupti_h AND EXISTS ${ergon_cupti_h}/cupti_version.h)
  file(STRINGS ${ergon_cupti_h}/cupti_version.h version REGEX "^#define CUPTI_API_VERSION [0-9]+$")
  string(REGEX REPLACE "^.* " "" version "${version}")
  if(version GREATER_EQUAL 130000)
    set(ergon_cupti_include ${ergon_cupti_h})
  endif()
endif()
