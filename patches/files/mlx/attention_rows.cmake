# Attention whose rows keep their bits; included by the rows.cmake of a back-end
# that has it. fast.cpp uses it only then.
target_sources(mlx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/attention_rows.cpp)
set_property(
  SOURCE ${CMAKE_CURRENT_LIST_DIR}/fast.cpp
  TARGET_DIRECTORY mlx
  APPEND
  PROPERTY COMPILE_DEFINITIONS MLX_ATTENTION_ROWS)
