// The part of Metal's C++ interface that MLX uses, for the simulated device.
// Written from the public documentation of the API. Classes here have no state:
// their objects are in the runtime.
#pragma once

#include <Foundation/Foundation.hpp>
#include <Metal/MTLAllocation.hpp>
#include <Metal/MTLBuffer.hpp>
#include <Metal/MTLCaptureManager.hpp>
#include <Metal/MTLCommandBuffer.hpp>
#include <Metal/MTLCommandQueue.hpp>
#include <Metal/MTLComputeCommandEncoder.hpp>
#include <Metal/MTLComputePipeline.hpp>
#include <Metal/MTLDataType.hpp>
#include <Metal/MTLDevice.hpp>
#include <Metal/MTLEvent.hpp>
#include <Metal/MTLFence.hpp>
#include <Metal/MTLFunctionConstantValues.hpp>
#include <Metal/MTLFunctionDescriptor.hpp>
#include <Metal/MTLHeap.hpp>
#include <Metal/MTLLibrary.hpp>
#include <Metal/MTLLinkedFunctions.hpp>
#include <Metal/MTLResidencySet.hpp>
#include <Metal/MTLResource.hpp>
#include <Metal/MTLTypes.hpp>
