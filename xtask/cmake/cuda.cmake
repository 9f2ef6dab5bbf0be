# Included by MLX's `project()` in a CUDA build (CMAKE_PROJECT_mlx_INCLUDE).
#
# Of NVTX and cudnn-frontend the headers alone are pinned. FetchContent adds no folder that has no CMakeLists.txt, so the
# targets that MLX links are made here.

add_library(nvtx3-cpp INTERFACE)
target_include_directories(nvtx3-cpp INTERFACE "${FETCHCONTENT_SOURCE_DIR_NVTX3}/include")
target_link_libraries(nvtx3-cpp INTERFACE ${CMAKE_DL_LIBS})

add_library(cudnn_frontend INTERFACE)
target_include_directories(cudnn_frontend INTERFACE "${FETCHCONTENT_SOURCE_DIR_CUDNN}/include")
# MLX asks for it with CUDNN_FRONTEND_SKIP_JSON_LIB.
target_compile_definitions(cudnn_frontend INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)

# The Rust bridge calls more of MLX than its library shows; a static one hides nothing from it.
cmake_language(DEFER CALL set_target_properties mlx PROPERTIES
  CXX_VISIBILITY_PRESET default CUDA_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF)
