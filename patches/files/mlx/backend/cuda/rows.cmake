# What the overlay adds to the CUDA back-end; read by the CMakeLists.txt beside
# it. Each patch adds some of these files: what is there is built.
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

# fast.cpp asks for attention whose rows keep their bits only if a back-end has it.
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/attention_rows.cpp)
  target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/../../attention_rows.cpp)
  get_filename_component(MLX_FAST_SOURCE ${CMAKE_CURRENT_LIST_DIR}/../../fast.cpp
                         ABSOLUTE)
  set_property(
    SOURCE ${MLX_FAST_SOURCE}
    TARGET_DIRECTORY mlx
    APPEND
    PROPERTY COMPILE_DEFINITIONS MLX_ATTENTION_ROWS)
endif()
