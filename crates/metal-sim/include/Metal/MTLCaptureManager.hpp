#pragma once

#include <Foundation/Foundation.hpp>

namespace MTL {

enum CaptureDestination : NS::Integer {
  CaptureDestinationDeveloperTools = 1,
  CaptureDestinationGPUTraceDocument = 2,
};

class CaptureDescriptor : public NS::Referencing<CaptureDescriptor> {
 public:
  static CaptureDescriptor* alloc();
  void setCaptureObject(NS::Object* object);
  void setDestination(CaptureDestination destination);
  void setOutputURL(const NS::URL* url);

 protected:
  CaptureDescriptor() = default;
};

// Captures are for Apple's tools; MTL_SIM_TRACE is the simulator's record.
class CaptureManager : public NS::Referencing<CaptureManager> {
 public:
  static CaptureManager* sharedCaptureManager();
  bool startCapture(const CaptureDescriptor* descriptor, NS::Error** error);
  void stopCapture();

 protected:
  CaptureManager() = default;
};

} // namespace MTL
