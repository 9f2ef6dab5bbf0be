# The overlay's additions to the Metal back-end; included by the CMakeLists.txt
# next to it. Each patch adds some of these files; those that exist are built.
foreach(
  name
  attention_plan
  attention_rows
  dense_plan
  dense_rows
  gated_delta_rows
  gather_rows
  kernel_fingerprint
  kernel_record
  qmv_dispatch
  qmv_plan
  qmv_streamed)
  if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/${name}.cpp)
    target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/${name}.cpp)
  endif()
endforeach()

if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/attention_rows.cpp)
  include(${CMAKE_CURRENT_LIST_DIR}/../../attention_rows.cmake)
endif()

# The order-preserving kernels, compiled on first use or ahead of time.
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/qmv_streamed.cpp)
  if(MLX_METAL_JIT)
    make_jit_source(qmv_streamed kernels/streamed_tile.h)
    if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/kernels/fp_qmv_streamed.h)
      make_jit_source(fp_qmv_streamed kernels/streamed_tile.h)
    endif()
    target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/qmv_streamed_jit.cpp)
  else()
    target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/qmv_streamed_nojit.cpp)
  endif()
endif()

if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/dense_rows.cpp)
  if(MLX_METAL_JIT)
    make_jit_source(gemv_rows)
    target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/dense_rows_jit.cpp)
  else()
    target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/dense_rows_nojit.cpp)
  endif()
endif()

# The tree that host code and kernels are built from, for kernel_fingerprint.cpp. A
# tree cannot contain its own id, so the build passes it. Without it nothing is checked.
if(MLX_OVERLAY_TREE)
  set_source_files_properties(
    ${CMAKE_CURRENT_LIST_DIR}/kernel_fingerprint.cpp TARGET_DIRECTORY mlx
    PROPERTIES COMPILE_DEFINITIONS "MLX_OVERLAY_TREE=\"${MLX_OVERLAY_TREE}\"")
  set(FINGERPRINT_SOURCE ${CMAKE_CURRENT_LIST_DIR}/kernels/kernel_fingerprint.metal)
  set(FINGERPRINT_FLAGS
      -x metal
      -DMLX_OVERLAY_FINGERPRINT=mlx_overlay_tree_${MLX_OVERLAY_TREE})
  if(NOT CMAKE_OSX_DEPLOYMENT_TARGET STREQUAL "")
    list(APPEND FINGERPRINT_FLAGS -mmacosx-version-min=${CMAKE_OSX_DEPLOYMENT_TARGET})
  endif()
  # kernels/CMakeLists.txt puts its own files before those in this list.
  set(KERNEL_AIR ${CMAKE_CURRENT_BINARY_DIR}/kernels/kernel_fingerprint.air)
  add_custom_command(
    OUTPUT ${KERNEL_AIR}
    COMMAND xcrun -sdk macosx metal ${FINGERPRINT_FLAGS} -c ${FINGERPRINT_SOURCE} -o
            ${KERNEL_AIR}
    DEPENDS ${FINGERPRINT_SOURCE}
    VERBATIM)
  add_custom_target(kernel-fingerprint DEPENDS ${KERNEL_AIR})
  cmake_language(DEFER CALL add_dependencies mlx-metallib kernel-fingerprint)
endif()
