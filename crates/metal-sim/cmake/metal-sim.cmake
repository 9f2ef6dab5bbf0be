# Builds MLX's Metal back-end for the simulated device.
#
# Pass -DCMAKE_PROJECT_mlx_INCLUDE=<this file>: CMake reads it right after
# project(mlx), in the scope of MLX's own root file, which is not changed. It
# provides what MLX would find on a Mac:
#
# - Metal.framework and its two companions: the static library metalsim.
# - metal-cpp: our own include folder.
# - xcrun: the kernel compiler metal-simc (METAL_SIM_COMPILER), first on PATH
#   for every custom command.
# - whether Metal is available, and the version of its language: see below.

set(METAL_SIM_COMPILER
    ""
    CACHE FILEPATH "The kernel compiler, metal-simc")
if(NOT EXISTS "${METAL_SIM_COMPILER}")
  message(
    FATAL_ERROR
      "METAL_SIM_COMPILER must be the path of the kernel compiler metal-simc, "
      "but is \"${METAL_SIM_COMPILER}\". Build it with `cargo build -p metal-sim`.")
endif()

# MLX's root file turns Metal off on other systems than Apple's, and reads the
# version of the Metal language from Apple's SDK, else uses 0. Neither can be
# set from outside, so both are replaced when the file sets them. Version 3.2
# enables the kernels of the fast fence; 4.0 would enable NAX kernels, which
# need Apple's tensor headers.
set(METAL_SIM_LANGUAGE 320)
macro(_metal_sim_answer variable access)
  if("${access}" STREQUAL "MODIFIED_ACCESS")
    if("${variable}" STREQUAL "MLX_BUILD_METAL")
      set(MLX_BUILD_METAL ON)
    else()
      set(MLX_METAL_VERSION ${METAL_SIM_LANGUAGE})
    endif()
  endif()
endmacro()
variable_watch(MLX_BUILD_METAL _metal_sim_answer)
variable_watch(MLX_METAL_VERSION _metal_sim_answer)
macro(_metal_sim_check)
  if(NOT MLX_BUILD_METAL OR NOT MLX_METAL_VERSION EQUAL METAL_SIM_LANGUAGE)
    message(
      FATAL_ERROR
        "MLX was configured without Metal (MLX_BUILD_METAL=${MLX_BUILD_METAL}, "
        "MLX_METAL_VERSION=${MLX_METAL_VERSION}): its root CMakeLists.txt "
        "does not decide this as ${CMAKE_CURRENT_FUNCTION_LIST_FILE} "
        "expects.")
  endif()
endmacro()
cmake_language(DEFER CALL _metal_sim_check)

get_filename_component(_metal_sim_root "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
add_subdirectory("${_metal_sim_root}" "${CMAKE_BINARY_DIR}/metal-sim")
# After MLX's own, so that mlx stays the first target of the package.
cmake_language(DEFER CALL install TARGETS metalsim EXPORT MLXTargets
               ARCHIVE DESTINATION lib)
install(
  PROGRAMS "${METAL_SIM_COMPILER}"
  DESTINATION bin
  RENAME metal-simc)

set(METAL_LIB metalsim)
set(FOUNDATION_LIB metalsim)
set(QUARTZ_LIB metalsim)
set(FETCHCONTENT_SOURCE_DIR_METAL_CPP "${_metal_sim_root}/include")

file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/metal-sim/bin")
file(CREATE_LINK "${METAL_SIM_COMPILER}"
     "${CMAKE_BINARY_DIR}/metal-sim/bin/xcrun" SYMBOLIC)
# CMake passes this to the shell unchanged.
set_property(
  GLOBAL
  PROPERTY
    RULE_LAUNCH_CUSTOM
    "\"${CMAKE_COMMAND}\" -E env --modify \"PATH=path_list_prepend:${CMAKE_BINARY_DIR}/metal-sim/bin\""
)

# Without the overlay (`cargo xtask build --pristine`) two files do not build
# with GCC 12: its library cannot convert a tuple to a pair, and with
# optimisation it emits no function for a template that another file uses. Here
# the text must not change, so flags are used instead. The file compiled without
# optimisation only prepares dispatches.
set(_metal_sim_mlx "${CMAKE_CURRENT_SOURCE_DIR}/mlx/backend/metal")
file(READ "${_metal_sim_mlx}/fft.cpp" _metal_sim_text)
if(_metal_sim_text MATCHES "return std::make_tuple\\(w_k, w_q\\)")
  set_source_files_properties(
    "${_metal_sim_mlx}/fft.cpp"
    PROPERTIES COMPILE_OPTIONS
               "-include;${CMAKE_CURRENT_LIST_DIR}/tuple_to_pair.h")
endif()
file(READ "${_metal_sim_mlx}/matmul.cpp" _metal_sim_text)
if(NOT _metal_sim_text MATCHES "template decltype\\(steel_matmul_regular_axpby")
  set_source_files_properties("${_metal_sim_mlx}/matmul.cpp"
                              PROPERTIES COMPILE_OPTIONS "-O0")
endif()

# MLX's rules do not depend on the compiler (nor on Xcode), so files made by an
# older one are removed.
file(SHA256 "${METAL_SIM_COMPILER}" _metal_sim_hash)
if(NOT _metal_sim_hash STREQUAL METAL_SIM_COMPILER_HASH)
  file(GLOB _metal_sim_old "${CMAKE_BINARY_DIR}/mlx/backend/metal/kernels/*.air"
       "${CMAKE_BINARY_DIR}/mlx/backend/metal/jit/*.cpp")
  if(_metal_sim_old)
    file(REMOVE ${_metal_sim_old})
  endif()
  set(METAL_SIM_COMPILER_HASH
      "${_metal_sim_hash}"
      CACHE INTERNAL "The compiler that made the kernels")
endif()
