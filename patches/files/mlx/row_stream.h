// Streams with a row policy, and the builds that cannot keep one.

#pragma once

#include "mlx/api.h"
#include "mlx/row_policy.h"
#include "mlx/stream.h"

namespace mlx::core {

class Primitive;

/// Gives a stream its policy, once and before its first work. Throws if it is
/// too late, or if the stream's device or this build cannot keep it.
MLX_API void set_stream_policy(Stream s, mlx_row_policy policy);

/// Makes a GPU stream of the calling thread with a policy.
MLX_API Stream new_policy_stream(mlx_row_policy policy);

/// The policy of a stream, or the kind MLX_ROW_DECLINE if it has none.
MLX_API mlx_row_policy stream_policy(Stream s);

/// The index of a ThreadLocalStream is not that of a Stream: sliced, it would
/// name another stream. Resolve it with stream_from_thread_local_stream.
void set_stream_policy(ThreadLocalStream, mlx_row_policy) = delete;
mlx_row_policy stream_policy(ThreadLocalStream) = delete;

/// Throws if the process requests a policy that this build cannot keep and the
/// primitive is covered by policies.
void refuse_row_policy(Primitive& primitive);

} // namespace mlx::core
