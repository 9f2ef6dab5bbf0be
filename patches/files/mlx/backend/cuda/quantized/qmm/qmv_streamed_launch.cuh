// Chooses the kernel for a format and a number of rows, and launches it.

#pragma once

#include <algorithm>

#include "mlx/backend/cuda/quantized/qmm/qmv_streamed.cuh"
#include "mlx/backend/cuda/quantized/qmm/qmv_streamed.h"
#include "mlx/backend/cuda/utils.h"

namespace mlx::core {

/// What a warp of a kernel for V rows does. Measured on an H200: a lane's sums
/// (32 bytes of registers for a row and output, 16 at 5 or 6 bits) leave room
/// for this many outputs and chunks in flight.
template <int V, bool wide_sums>
struct QmvTile {
  static constexpr int outputs = V == 4 && !wide_sums ? 1 : 2;
  static constexpr int ahead = wide_sums && (V == 4 || V == 6) ? 2 : 4;
  static constexpr int warps =
      V == 1 || (V == 4 && !wide_sums) || (V == 6 && wide_sums) ? 4 : 8;
};

/// The limits of a device for rows of that many chunks: shared memory of a
/// block in bytes, and blocks that run at once.
struct QmvRoom {
  int device = -1;
  int chunks = 0;
  size_t bytes = 0;
  int blocks = 0;
};

template <typename T, typename Q, typename S, int group_size, int V>
void launch_qmv_tile(QmvStreamed call, cu::CommandEncoder& encoder) {
  using Format = cu::QmvFormat<T, Q>;
  using Tile = QmvTile<V, sizeof(typename Format::Sum) == 4>;
  auto* kernel = &cu::qmv_streamed_kernel<
      T,
      Q,
      S,
      group_size,
      V,
      Tile::outputs,
      Tile::ahead,
      Tile::warps>;
  constexpr size_t chunk_bytes = size_t(V) * Format::chunk * sizeof(T);
  const int chunks = (call.k + Format::chunk - 1) / Format::chunk;

  static thread_local QmvRoom room;
  const int device = encoder.device().cuda_device();
  if (room.device != device || room.chunks != chunks) {
    encoder.device().make_current();
    int most = 0, processors = 0, blocks = 0;
    CHECK_CUDA_ERROR(cudaDeviceGetAttribute(
        &most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    CHECK_CUDA_ERROR(cudaDeviceGetAttribute(
        &processors, cudaDevAttrMultiProcessorCount, device));
    CHECK_CUDA_ERROR(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    room.bytes = std::min<size_t>(chunks, most / chunk_bytes) * chunk_bytes;
    CHECK_CUDA_ERROR(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, kernel, 32 * Tile::warps, room.bytes));
    room.blocks = std::max(1, blocks) * processors;
    room.device = device;
    room.chunks = chunks;
  }
  int resident = room.bytes / chunk_bytes;

  constexpr int block_outputs = Tile::warps * Tile::outputs;
  const dim3 grid(
      std::min((call.n + block_outputs - 1) / block_outputs, room.blocks),
      (call.m + V - 1) / V,
      call.batch);
  void* args[] = {
      &call.x,
      &call.w,
      &call.scales,
      &call.biases,
      &call.global_scale,
      &call.out,
      &call.m,
      &call.n,
      &call.k,
      &resident,
      &call.broadcast_w};
  encoder.add_kernel_node_raw(
      reinterpret_cast<void*>(kernel),
      grid,
      dim3(32, Tile::warps),
      {},
      room.bytes,
      args);
}

template <typename T, typename Q, typename S, int group_size>
void launch_qmv_format(const QmvStreamed& call, cu::CommandEncoder& encoder) {
  // The fewest passes over the weights, with rows evenly distributed.
  const int passes = (call.m + qmv_streamed_rows - 1) / qmv_streamed_rows;
  const int rows = (call.m + passes - 1) / passes;
  auto launch = [&](auto v) {
    launch_qmv_tile<T, Q, S, group_size, v.value>(call, encoder);
  };
  if (rows <= 1) {
    launch(std::integral_constant<int, 1>{});
  } else if (rows <= 2) {
    launch(std::integral_constant<int, 2>{});
  } else if (rows <= 4) {
    launch(std::integral_constant<int, 4>{});
  } else if (rows <= 6) {
    launch(std::integral_constant<int, 6>{});
  } else {
    launch(std::integral_constant<int, 8>{});
  }
}

template <typename T, typename Q>
void launch_qmv_affine(const QmvStreamed& call, cu::CommandEncoder& encoder) {
  if (call.group_size == 32) {
    launch_qmv_format<T, Q, T, 32>(call, encoder);
  } else if (call.group_size == 64) {
    launch_qmv_format<T, Q, T, 64>(call, encoder);
  } else {
    launch_qmv_format<T, Q, T, 128>(call, encoder);
  }
}

template <typename T>
void launch_qmv_streamed(const QmvStreamed& call, cu::CommandEncoder& encoder) {
  using namespace cutlass;
  switch (call.mode) {
    case QuantizationMode::Mxfp4:
      return launch_qmv_format<T, float_e2m1_t, float_ue8m0_t, 32>(
          call, encoder);
    case QuantizationMode::Mxfp8:
      return launch_qmv_format<T, float_e4m3_t, float_ue8m0_t, 32>(
          call, encoder);
    case QuantizationMode::Nvfp4:
      return launch_qmv_format<T, float_e2m1_t, float_e4m3_t, 16>(
          call, encoder);
    default:
      break;
  }
  switch (call.bits) {
    case 2:
      return launch_qmv_affine<T, uint2b_t>(call, encoder);
    case 3:
      return launch_qmv_affine<T, uint3b_t>(call, encoder);
    case 4:
      return launch_qmv_affine<T, uint4b_t>(call, encoder);
    case 5:
      return launch_qmv_affine<T, uint5b_t>(call, encoder);
    case 6:
      return launch_qmv_affine<T, uint6b_t>(call, encoder);
    default:
      return launch_qmv_affine<T, uint8_t>(call, encoder);
  }
}

} // namespace mlx::core
