// The object behind MTL::Device.
#pragma once

#include <Metal/Metal.hpp>

namespace metalsim {

class DeviceObject final : public MTL::Device {};

class ArchitectureObject final : public MTL::Architecture {};

} // namespace metalsim
