# MLX writes its kernels to MLX_METAL_PATH during the build, and compiles that
# path into the library as the last place to search for them. Here the two must
# differ: a prefix changes as a whole and only at the end of a build. So the
# kernels are written to the build folder, and the library gets the path that
# they will have after the install.
#
# Read through CMAKE_PROJECT_TOP_LEVEL_INCLUDES, with MLX_METAL_PATH and
# MLX_OVERLAY_METALLIB (a file) set.

function(_mlx_overlay_name_metallib)
  get_target_property(_definitions mlx COMPILE_DEFINITIONS)
  set(_built "METAL_PATH=\"${MLX_METAL_PATH}/mlx.metallib\"")
  if(NOT _built IN_LIST _definitions)
    message(
      FATAL_ERROR
        "MLX is not compiled with ${_built}: its CMake files name the kernels "
        "in another way than ${CMAKE_CURRENT_FUNCTION_LIST_FILE} expects.")
  endif()
  list(REMOVE_ITEM _definitions "${_built}")
  list(APPEND _definitions "METAL_PATH=\"${MLX_OVERLAY_METALLIB}\"")
  set_target_properties(mlx PROPERTIES COMPILE_DEFINITIONS "${_definitions}")
endfunction()
# After MLX's own files.
cmake_language(DEFER CALL _mlx_overlay_name_metallib)
