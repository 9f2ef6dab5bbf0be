# Additional settings to build mlx-c with the pinned MLX and GCC 12 or later: -DCMAKE_PROJECT_INCLUDE=<this file>.
include_guard(GLOBAL)

add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include \"${CMAKE_CURRENT_LIST_DIR}/format.h\">")
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/mlx/c/array.cpp
                            PROPERTIES COMPILE_OPTIONS "-include;${CMAKE_CURRENT_LIST_DIR}/half.h")

# An mlx-c for another MLX calls some functions with that version's arguments.
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/CMakeLists.txt tag REGEX "GIT_TAG v[0-9.]+")
string(REGEX REPLACE ".*GIT_TAG v([0-9.]+).*" "${CMAKE_CURRENT_LIST_DIR}/\\1.h" header "${tag}")
if(EXISTS "${header}")
  set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/mlx/c/ops.cpp PROPERTIES COMPILE_OPTIONS "-include;${header}")
endif()

# ci/mlx-rs.sh
if(MLX_RS_CLOCK)
  add_library(mlxrsclock STATIC ${CMAKE_CURRENT_LIST_DIR}/clock.c)
  set_property(TARGET mlxrsclock PROPERTY POSITION_INDEPENDENT_CODE ON)
endif()
