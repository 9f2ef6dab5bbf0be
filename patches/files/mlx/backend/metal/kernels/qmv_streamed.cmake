# Read by the CMakeLists.txt beside it, where kernels are built ahead.
build_kernel(qmv_streamed qmv_streamed.h quantized.h quantized_utils.h
             ${STEEL_HEADERS})
