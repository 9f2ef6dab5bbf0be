#pragma once

#include <Foundation/Foundation.hpp>

namespace MTL {

// Orders encoders of one queue: an encoder that waits for a fence starts
// after every earlier encoder that updates it.
class Fence : public NS::Referencing<Fence> {
 public:
  NS::String* label() const;
  void setLabel(const NS::String* label);

 protected:
  Fence() = default;
};

} // namespace MTL
