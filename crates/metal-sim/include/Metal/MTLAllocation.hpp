#pragma once

#include <Foundation/Foundation.hpp>

namespace MTL {

class Allocation : public NS::Referencing<Allocation> {
 public:
  NS::UInteger allocatedSize() const;

 protected:
  Allocation() = default;
};

} // namespace MTL
