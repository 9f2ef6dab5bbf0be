# Policies for quantized products with several rows; read by the CMakeLists.txt
# beside it.
target_sources(
  mlx
  PRIVATE ${CMAKE_CURRENT_LIST_DIR}/../../row_policy.cpp
          ${CMAKE_CURRENT_LIST_DIR}/qmv_dispatch.cpp
          ${CMAKE_CURRENT_LIST_DIR}/qmv_fingerprint.cpp
          ${CMAKE_CURRENT_LIST_DIR}/qmv_plan.cpp)
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/kernel_record.cpp)
  target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/kernel_record.cpp)
endif()

# The order-preserving kernels, where the patch that adds them is applied.
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/qmv_streamed.cpp)
  target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/qmv_streamed.cpp)
  if(MLX_METAL_JIT)
    make_jit_source(qmv_streamed)
    if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/kernels/fp_qmv_streamed.h)
      make_jit_source(fp_qmv_streamed)
    endif()
    target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/qmv_streamed_jit.cpp)
  else()
    target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/qmv_streamed_nojit.cpp)
  endif()
endif()

# The tree that host code and kernels are built from, for qmv_fingerprint.cpp. A
# tree cannot hold its own id: the build passes it. Without it nothing is checked.
if(MLX_OVERLAY_TREE)
  set_source_files_properties(
    ${CMAKE_CURRENT_LIST_DIR}/qmv_fingerprint.cpp TARGET_DIRECTORY mlx
    PROPERTIES COMPILE_DEFINITIONS "MLX_OVERLAY_TREE=\"${MLX_OVERLAY_TREE}\"")
  set(QMV_SOURCE ${CMAKE_CURRENT_LIST_DIR}/kernels/qmv_fingerprint.metal)
  set(QMV_FLAGS
      -x metal
      -DMLX_OVERLAY_FINGERPRINT=mlx_overlay_tree_${MLX_OVERLAY_TREE})
  if(NOT CMAKE_OSX_DEPLOYMENT_TARGET STREQUAL "")
    list(APPEND QMV_FLAGS -mmacosx-version-min=${CMAKE_OSX_DEPLOYMENT_TARGET})
  endif()
  # kernels/CMakeLists.txt puts its own files in front of what is in this list.
  set(KERNEL_AIR ${CMAKE_CURRENT_BINARY_DIR}/kernels/qmv_fingerprint.air)
  add_custom_command(
    OUTPUT ${KERNEL_AIR}
    COMMAND xcrun -sdk macosx metal ${QMV_FLAGS} -c ${QMV_SOURCE} -o
            ${KERNEL_AIR}
    DEPENDS ${QMV_SOURCE}
    VERBATIM)
  add_custom_target(qmv-fingerprint DEPENDS ${KERNEL_AIR})
  cmake_language(DEFER CALL add_dependencies mlx-metallib qmv-fingerprint)
endif()
