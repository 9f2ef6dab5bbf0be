// Policies for quantized products, and what dispatched of them; see lib.rs.

#pragma once

#include <cstdint>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

struct ProductShape;
struct ProductPlan;
struct ProductRoute;
struct StrayProduct;

bool has_policies();
RawStream new_policy_stream(std::int32_t policy);
std::int32_t stream_policy(std::int32_t index);
std::int32_t process_policy();
ProductPlan plan_product(const ProductShape& product, RawStream stream);
void set_routes(rust::Slice<const ProductRoute> routes);
bool has_matrix_units();
rust::Vec<std::uint64_t> path_counts();
void reset_path_counts();
void record_kernels();
rust::String recorded_kernels();
rust::Vec<StrayProduct> stray_products(
    rust::Slice<const ArrayRef> arrays,
    RawStream stream);

} // namespace mlx_overlay
