// The part of Foundation that Metal's C++ interface uses, for the simulated
// device. Written from the public documentation of the API; the objects of
// these classes are in the runtime (runtime/object.h).
#pragma once

#include <Foundation/NSArray.hpp>
#include <Foundation/NSAutoreleasePool.hpp>
#include <Foundation/NSAvailability.hpp>
#include <Foundation/NSError.hpp>
#include <Foundation/NSObject.hpp>
#include <Foundation/NSSharedPtr.hpp>
#include <Foundation/NSString.hpp>
#include <Foundation/NSTypes.hpp>
#include <Foundation/NSURL.hpp>
