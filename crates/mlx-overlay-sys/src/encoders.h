// The per-thread state of MLX's Metal back-end.

#pragma once

namespace mlx_overlay {

// Leaks the calling thread's encoders instead of destroying them with the
// thread: their destructors wait for the device.
void leak_encoders();

} // namespace mlx_overlay
