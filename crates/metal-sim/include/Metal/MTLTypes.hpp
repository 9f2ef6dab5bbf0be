#pragma once

#include <Foundation/Foundation.hpp>

namespace MTL {

struct Size {
  Size() = default;
  Size(NS::UInteger width, NS::UInteger height, NS::UInteger depth)
      : width(width), height(height), depth(depth) {}
  static Size
  Make(NS::UInteger width, NS::UInteger height, NS::UInteger depth) {
    return Size(width, height, depth);
  }

  NS::UInteger width{0};
  NS::UInteger height{0};
  NS::UInteger depth{0};
};

} // namespace MTL
