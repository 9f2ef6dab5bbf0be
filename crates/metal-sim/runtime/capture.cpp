// MTL::CaptureManager: there is nothing to capture here.
#include <Metal/Metal.hpp>

#include "runtime/foundation.h"

namespace metalsim {
namespace {

class CaptureDescriptorObject final : public MTL::CaptureDescriptor {};

class CaptureManagerObject final : public MTL::CaptureManager {};

} // namespace
} // namespace metalsim

namespace MTL {

using namespace metalsim;

CaptureDescriptor* CaptureDescriptor::alloc() {
  return new CaptureDescriptorObject;
}

void CaptureDescriptor::setCaptureObject(NS::Object*) {}

void CaptureDescriptor::setDestination(CaptureDestination) {}

void CaptureDescriptor::setOutputURL(const NS::URL*) {}

CaptureManager* CaptureManager::sharedCaptureManager() {
  static auto* manager = new CaptureManagerObject;
  return manager;
}

bool CaptureManager::startCapture(const CaptureDescriptor*, NS::Error** error) {
  set_error(
      error,
      1,
      "the simulated device writes no GPU trace; MTL_SIM_TRACE names a file "
      "for its record of dispatches");
  return false;
}

void CaptureManager::stopCapture() {}

} // namespace MTL
