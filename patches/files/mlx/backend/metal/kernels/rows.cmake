# The overlay's kernels; included by the CMakeLists.txt next to it. Each patch adds
# some; those that exist are built. Those of products are built ahead of time only
# if MLX's own are.
if(NOT MLX_METAL_JIT)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/qmv_streamed.metal)
    build_kernel(qmv_streamed qmv_streamed.h streamed_tile.h quantized.h
                 quantized_utils.h ${STEEL_HEADERS})
  endif()
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/fp_qmv_streamed.metal)
    build_kernel(fp_qmv_streamed fp4.h fp8.h fp_qmv_streamed.h streamed_tile.h
                 fp_quantized.h quantized_utils.h ${STEEL_HEADERS})
  endif()
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/gemv_rows.metal)
    build_kernel(gemv_rows gemv.h gemv_rows.h ${STEEL_HEADERS})
  endif()
endif()
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/sdpa_rows.metal)
  build_kernel(sdpa_rows sdpa_rows.h)
endif()
