# Policies for quantized products with several rows; read by the CMakeLists.txt
# beside it.
target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/qmv_dispatch.cpp
                           ${CMAKE_CURRENT_LIST_DIR}/qmv_plan.cpp)

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
