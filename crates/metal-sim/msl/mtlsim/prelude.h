// Compiled once for each compiler and set of flags; every kernel includes it.
#pragma once
// The shim itself is not metered, except code inlined from it into a kernel.
#ifdef MTLSIM_METER
#pragma clang attribute push( \
    __attribute__((no_sanitize("kernel-address"))), apply_to = function)
#elif defined(MTLSIM_TRACKED)
#pragma clang attribute push( \
    __attribute__((no_sanitize("kernel-memory"))), apply_to = function)
#endif
#ifdef MTLSIM_CHECK
#include "check.h"
#else
#include "kernel.h"
#include "meter.h"
#include "races.h"
#include "track.h"
#include "undefined.h"
#endif
#if defined(MTLSIM_METER) || defined(MTLSIM_TRACKED)
#pragma clang attribute pop
#endif
