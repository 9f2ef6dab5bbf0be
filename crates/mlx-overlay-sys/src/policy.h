// Row policies and dispatch counters; see lib.rs.

#pragma once

#include <cstdint>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

struct ProductShape;
struct ProductPlan;
struct ProductRoute;
struct RowFinding;
struct RowPolicy;
struct PolicyHook;

bool has_policies();
bool has_row_kernels();
RawStream new_policy_stream(RowPolicy policy);
void set_stream_policy(std::int32_t index, RowPolicy policy);
RowPolicy stream_policy(std::int32_t index);
RowPolicy process_policy();
void set_policy_hook(rust::Box<PolicyHook> hook);
void remove_policy_hook();
bool in_policy_hook();
ProductPlan plan_product(const ProductShape& product, RawStream stream);
void set_routes(rust::Slice<const ProductRoute> routes);
bool has_matrix_units();
rust::Vec<std::uint64_t> path_counts();
void reset_path_counts();
void record_kernels();
rust::String recorded_kernels();
rust::Vec<RowFinding> check_operations(
    rust::Slice<const ArrayRef> arrays,
    RawStream stream);

} // namespace mlx_overlay
