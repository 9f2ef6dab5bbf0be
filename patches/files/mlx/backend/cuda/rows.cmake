# The overlay's additions to the CUDA back-end; included by the CMakeLists.txt
# next to it. Each patch adds some of these files; those that exist are built.
foreach(
  name
  attention_rows.cpp
  dense_rows.cpp
  quantized_rows.cpp
  quantized/qmm/qmv_streamed.cpp
  quantized/qmm/qmv_streamed_bfloat16.cu
  quantized/qmm/qmv_streamed_float16.cu
  quantized/qmm/qmv_streamed_float32.cu)
  if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/${name})
    target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/${name})
  endif()
endforeach()

if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/attention_rows.cpp)
  include(${CMAKE_CURRENT_LIST_DIR}/../../attention_rows.cmake)
endif()
