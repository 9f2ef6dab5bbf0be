// Runs one kernel, Apple's or the simulator's, on given memory.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

struct oracle_binding {
  const char* name; // of the kernel's parameter
  void* data;
  uint64_t length;
};

struct oracle_launch {
  const char* object; // shared object that exports mtlsim_kernel_entry
  const oracle_binding* bindings;
  uint32_t binding_count;
  uint32_t threadgroups[3];
  uint32_t threads[3]; // in a threadgroup
  uint32_t reduction; // mtlsim_reduction
};

// 0, or 1 with one line of text in `message`.
int oracle_run(const oracle_launch* launch, char* message, size_t message_size);
}
