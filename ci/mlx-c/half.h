// mlx-c declares its half-precision functions only on ARM, but mlx-rs calls
// them everywhere. On other systems they get types of the same size.
#pragma once

#ifndef __aarch64__
#include <stdint.h>

typedef struct {
  uint16_t bits;
} float16_t;
typedef uint16_t bfloat16_t;
#define HAS_FLOAT16
#define HAS_BFLOAT16
#endif
