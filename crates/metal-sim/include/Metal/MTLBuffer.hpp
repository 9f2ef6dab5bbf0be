#pragma once

#include <Metal/MTLResource.hpp>

namespace MTL {

class Buffer : public NS::Referencing<Buffer, Resource> {
 public:
  void* contents();
  NS::UInteger length() const;

 protected:
  Buffer() = default;
};

} // namespace MTL
