// Policies for quantized products, and what dispatched of them; see lib.rs.

#pragma once

#include <cstdint>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

struct ProductShape;
struct ProductPlan;
struct ProductRoute;
struct KernelCount;
struct StrayProduct;

bool has_policies();
RawStream new_policy_stream(std::int32_t policy);
std::int32_t stream_policy(std::int32_t index);
std::int32_t process_policy();
ProductPlan plan_product(const ProductShape& product, RawStream stream);
void set_routes(rust::Slice<const ProductRoute> routes);
rust::Vec<KernelCount> kernel_counts();
void reset_kernel_counts();
rust::String last_kernel();
rust::Vec<StrayProduct> stray_products(
    rust::Slice<const ArrayRef> arrays,
    RawStream stream);

} // namespace mlx_overlay
