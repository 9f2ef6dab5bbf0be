// What a thread of MLX's Metal back-end keeps.

#pragma once

namespace mlx_overlay {

// Leaks the calling thread's encoders instead of letting them be destroyed with
// it: their destructors wait for the device.
void leak_encoders();

} // namespace mlx_overlay
