# Read by the CMakeLists.txt beside it, where kernels are built ahead.
build_kernel(fp_qmv_streamed fp4.h fp8.h fp_qmv_streamed.h fp_quantized.h
             quantized_utils.h ${STEEL_HEADERS})
