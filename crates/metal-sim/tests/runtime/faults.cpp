// Every detector catches a planted fault and names the culprit, and a correct
// dispatch passes. Runs with guard pages (MTL_SIM_GUARD=1, MTL_SIM_STALE=1).
#include "harness.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cstring>

#include <metal_sim.h>

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

namespace {

// A correct dispatch of `name`, into which a fault is planted.
NS::SharedPtr<MTL::CommandBuffer> fill(
    Gpu& gpu,
    const std::string& name,
    const NS::SharedPtr<MTL::Buffer>& out,
    std::size_t threads) {
  auto buffer = gpu.command_buffer();
  Encoder(buffer)
      .pipeline(gpu.pipeline(name))
      .bind(0, out)
      .value(1, 1)
      .threads(threads)
      .end();
  return buffer;
}

void unwritten_output(Gpu& gpu) {
  CHECK(finish(fill(gpu, "fill", gpu.buffer(100), 100)) == "");

  auto out = gpu.buffer(100);
  CHECK_TEXT(
      finish(fill(gpu, "forget", out, 100)),
      "forget",
      "buffer 0 (out)",
      "unwritten at byte 148 of 400");
  CHECK(metal_sim_first_unwritten(out->contents(), 400, 4) == 148);
  CHECK(metal_sim_first_unwritten(out->contents(), 148, 4) == SIZE_MAX);
  CHECK(metal_sim_first_unwritten(Gpu::floats(out) + 38, 248, 4) == SIZE_MAX);

  // The last elements belong to it as well.
  CHECK_TEXT(
      finish(fill(gpu, "fill", gpu.buffer(100), 99)), "unwritten at byte 396");
  // Data written by the host or an earlier kernel stays written.
  auto full = gpu.buffer(std::vector<float>(100, 0));
  CHECK(finish(fill(gpu, "forget", full, 100)) == "");
}

// The host's data may have the bits that mark memory as unwritten. Once a
// kernel has read them, leaving them in an output is not a fault. Elements that
// a kernel itself left unwritten stay a fault, whoever reads them.
void data_that_look_unwritten(Gpu& gpu) {
  auto data = gpu.buffer(100);
  auto out = gpu.buffer(100);
  std::fill_n(Gpu::floats(data), 37, 0.0f);
  std::fill_n(Gpu::floats(data) + 38, 62, 0.0f);
  auto read = [&](Encoder& encoder) {
    encoder.pipeline(gpu.pipeline("add_one"))
        .bind(0, data)
        .bind(1, out)
        .threads(100)
        .end();
  };
  auto reading = gpu.command_buffer();
  Encoder first(reading);
  read(first);
  CHECK(finish(reading) == "");
  CHECK(finish(fill(gpu, "forget", data, 100)) == "");

  data = gpu.buffer(100);
  auto both = fill(gpu, "forget", data, 100);
  Encoder second(both);
  read(second);
  auto text = finish(both);
  CHECK_TEXT(text, "forget", "unwritten at byte 148 of 400");
}

// A buffer was an output, then had the host's data, which a kernel read, and
// now serves a smaller output: behind it are the host's data.
void data_behind_a_smaller_output(Gpu& gpu) {
  const std::size_t floats = 3 * 16384 / sizeof(float);
  auto data = gpu.bytes(3 * 16384);
  auto unwritten = Gpu::floats(data)[floats - 100];
  CHECK(finish(fill(gpu, "fill", data, floats - 200)) == "");
  std::fill_n(Gpu::floats(data), floats, 1.0f);
  std::memcpy(Gpu::floats(data) + floats - 100, &unwritten, sizeof(unwritten));
  auto out = gpu.buffer(floats);
  auto reading = gpu.command_buffer();
  Encoder(reading)
      .pipeline(gpu.pipeline("add_one"))
      .bind(0, data)
      .bind(1, out)
      .threads(floats)
      .end();
  CHECK(finish(reading) == "");
  CHECK(finish(fill(gpu, "fill", data, floats - 300)) == "");
}

void two_dispatches_write_one_output(Gpu& gpu) {
  auto out = gpu.buffer(100);
  auto fill = gpu.pipeline("fill");
  auto buffer = gpu.command_buffer();
  Encoder encoder(buffer);
  encoder.pipeline(fill).bind(0, out).value(1, 1).threads(50);
  encoder->setBufferOffset(50 * sizeof(float), 0);
  encoder.threads(50).end();
  CHECK(finish(buffer) == "");
}

void allocator_rounding_is_no_output(Gpu& gpu) {
  // 3 pages, the last one partly used: MLX rounds up in this way.
  auto out = gpu.bytes(3 * 16384);
  auto used = (2 * 16384 + 400) / sizeof(float);
  CHECK(finish(fill(gpu, "fill", out, used)) == "");
  // Data of an earlier output there may have the bits of unwritten memory.
  auto data = gpu.bytes(3 * 16384);
  auto unwritten = Gpu::floats(data)[100];
  CHECK(finish(fill(gpu, "fill", data, used)) == "");
  std::memcpy(Gpu::floats(data) + 100, &unwritten, sizeof(unwritten));
  CHECK(finish(fill(gpu, "fill", data, 50)) == "");

  auto hole = gpu.bytes(3 * 16384);
  CHECK_TEXT(
      finish(fill(gpu, "fill", hole, 16384 / sizeof(float))),
      "unwritten at byte 16384");
}

// MLX's cache hands memory that was never written, for an evaluation that ended
// with an error, to a smaller output later.
void memory_that_an_output_does_not_fill(Gpu& gpu) {
  auto run = [&](const std::string& name,
                 std::size_t bytes,
                 std::size_t used,
                 bool reused) {
    auto out = gpu.bytes(bytes);
    if (reused) {
      CHECK(finish(fill(gpu, "fill", gpu.buffer(32), 32)) == "");
    }
    return finish(fill(gpu, name, out, used / sizeof(float)));
  };
  const std::size_t page = 16384;
  CHECK(run("fill", 4 * page, 2 * page + 400, true) == "");
  CHECK(run("fill", 400, 300, true) == "");
  // The same in memory that was made for the output, or more than the cache
  // gives, or not at the end.
  CHECK_TEXT(
      run("fill", 4 * page, 2 * page + 400, false), "unwritten at byte 33168");
  CHECK_TEXT(run("fill", 400, 300, false), "unwritten at byte 300 of 400");
  CHECK_TEXT(run("fill", 8 * page, 2 * page, true), "unwritten at byte 32768");
  CHECK_TEXT(run("fill", 400, 200, true), "unwritten at byte 200 of 400");
  CHECK_TEXT(run("forget", 400, 300, true), "unwritten at byte 148 of 400");
}

// What the runtime answers a checked kernel about an output that it reads.
void an_output_that_is_read(Gpu& gpu) {
  auto out = gpu.buffer(64);
  auto found = gpu.buffer(64);
  Gpu::floats(out)[10] = 1;
  auto buffer = gpu.command_buffer();
  Encoder(buffer)
      .pipeline(gpu.pipeline("peek"))
      .bind(0, out)
      .bind(1, found)
      .threads(64)
      .end();
  CHECK(finish(buffer) == "");
  CHECK(Gpu::floats(found)[10] == 0 && Gpu::floats(found)[11] == 1);
}

void the_least_allocation_is_no_output(Gpu& gpu) {
  auto shorts = [&](std::size_t bytes, std::size_t count) {
    auto out = gpu.bytes(bytes);
    auto buffer = gpu.command_buffer();
    Encoder(buffer)
        .pipeline(gpu.pipeline("fill_short"))
        .bind(0, out)
        .threads(count)
        .end();
    return finish(buffer);
  };
  CHECK(shorts(4, 1) == "");
  CHECK_TEXT(shorts(6, 2), "unwritten at byte 4 of 6");
}

void out_of_bounds(Gpu& gpu) {
  auto in = gpu.buffer(std::vector<float>(64, 0));
  auto out = gpu.buffer(64);
  auto run = [&](const std::string& name) {
    auto buffer = gpu.command_buffer();
    Encoder(buffer)
        .pipeline(gpu.pipeline(name))
        .bind(0, in)
        .bind(1, out)
        .threads(64)
        .end();
    return finish(buffer);
  };
  CHECK(run("add_one") == "");
  CHECK_TEXT(
      run("read_past"),
      "read_past, threadgroup (1, 0, 0)",
      "byte 256 of argument in (buffer index 0), which has 256 bytes");
  // The device continues.
  CHECK(run("add_one") == "");

  // One threadgroup: of several that are at fault, any may be the first.
  CHECK_TEXT(
      finish(fill(gpu, "write_past", gpu.buffer(32), 32)),
      "byte 262144 of argument out (buffer index 0)");
  CHECK_TEXT(
      finish(fill(gpu, "write_slack", gpu.bytes(4 * 63 + 1), 63)),
      "buffer 0 (out) was left by a store: byte 255 of 253");
}

void wrong_arguments(Gpu& gpu) {
  auto fill = gpu.pipeline("fill");
  auto out = gpu.buffer(32);
  auto with = [&](auto record) {
    auto buffer = gpu.command_buffer();
    Encoder encoder(buffer);
    record(encoder);
    encoder.end();
    return finish(buffer);
  };
  CHECK_TEXT(
      with([&](Encoder& e) { e.pipeline(fill).bind(0, out).threads(32); }),
      "fill",
      "nothing is bound at buffer index 1");
  CHECK_TEXT(
      with([&](Encoder& e) {
        e.pipeline(fill).bind(0, out).value(2, 1).threads(32);
      }),
      "nothing is bound at buffer index 1");
  CHECK_TEXT(
      with([&](Encoder& e) {
        e.pipeline(fill).bind(0, out);
        e->setBytes("", 1, 1);
        e.threads(32);
      }),
      "buffer 1 (value) has 1 bytes, the argument 4");
  CHECK_TEXT(
      with([&](Encoder& e) {
        e.pipeline(fill).bind(0, out).value(1, 1).threads(32);
        e.pipeline(fill).bind(0, out).threads(32);
      }),
      "buffer 1 (value) was bound before the pipeline state was set");
  CHECK_TEXT(
      with([&](Encoder& e) {
        e.pipeline(fill).bind(0, {}).value(1, 1).threads(32);
      }),
      "nothing is bound at buffer index 0");
  CHECK_TEXT(
      with([&](Encoder& e) { e.pipeline(fill).bind(31, out); }),
      "buffer index 31");
  CHECK_TEXT(
      with([&](Encoder& e) { e->setBuffer(out.get(), 129, 0); }),
      "buffer 0: offset 129 in 128 bytes");
  CHECK_TEXT(
      with([&](Encoder& e) {
        std::vector<char> much(4097);
        e->setBytes(much.data(), much.size(), 0);
      }),
      "setBytes at index 0 with 4097 bytes");
  CHECK_TEXT(
      with([&](Encoder& e) { e.threads(32); }), "without a pipeline state");
  CHECK_TEXT(
      with([&](Encoder& e) { e.pipeline(fill).threads(2048, 2048); }),
      "threadgroup of 2048x1x1 threads, the kernel takes 1024");
  CHECK_TEXT(
      with([&](Encoder& e) { e.pipeline(fill).threads(0); }), "0x1x1 threads");

  auto buffer = gpu.command_buffer();
  Encoder open(buffer);
  CHECK_TEXT(finish(buffer), "not ended");
}

void switched_off_arguments(Gpu& gpu) {
  auto pool = new_pool();
  auto with = [&](bool on) {
    auto* values = MTL::FunctionConstantValues::alloc()->init()->autorelease();
    values->setConstantValue(&on, MTL::DataTypeBool, 3);
    auto* descriptor = MTL::FunctionDescriptor::functionDescriptor();
    descriptor->setName(string("optional_input"));
    descriptor->setSpecializedName(string(on ? "input_on" : "input_off"));
    descriptor->setConstantValues(values);
    NS::Error* error = nullptr;
    auto function =
        NS::TransferPtr(gpu.library->newFunction(descriptor, &error));
    CHECK(function);
    auto state = NS::TransferPtr(
        gpu.device->newComputePipelineState(function.get(), &error));
    auto out = gpu.buffer(32);
    auto buffer = gpu.command_buffer();
    Encoder(buffer).pipeline(state).bind(1, out).threads(32).end();
    auto text = finish(buffer);
    CHECK(!text.empty() || Gpu::floats(out)[31] == 7);
    return text;
  };
  CHECK(with(false) == "");
  CHECK_TEXT(with(true), "input_on", "nothing is bound at buffer index 0");
}

void threadgroup_memory(Gpu& gpu) {
  auto pool = new_pool();
  auto with = [&](std::size_t bytes) {
    auto buffer = gpu.command_buffer();
    Encoder encoder(buffer);
    encoder.pipeline(gpu.pipeline("scratchpad")).bind(0, gpu.buffer(32));
    encoder->setThreadgroupMemoryLength(bytes, 0);
    encoder.threads(32).end();
    return finish(buffer);
  };
  CHECK_TEXT(with(32768 + 16), "32784, the device has 32768");
  // 1024 bytes are static.
  CHECK_TEXT(with(32768), "33792 bytes of threadgroup memory");
  CHECK_TEXT(with(20), "not a multiple of 16");

  auto function = NS::TransferPtr(gpu.library->newFunction(string("huge")));
  NS::Error* error = nullptr;
  CHECK(!gpu.device->newComputePipelineState(function.get(), &error));
  CHECK_TEXT(
      std::string(error->localizedDescription()->utf8String()),
      "huge uses 40000 bytes of threadgroup memory");
}

void use_after_free(Gpu& gpu) {
  auto out = gpu.buffer(32);
  auto buffer = fill(gpu, "fill", out, 32);
  out.reset();
  CHECK_TEXT(finish(buffer), "buffer 0 (out) was freed before");

  // While it runs: the kernel waits for a flag that is never set.
  auto flag = gpu.buffer(std::vector<float>{0});
  auto spinning = gpu.command_buffer();
  Encoder(spinning)
      .pipeline(gpu.pipeline("spin"))
      .bind(0, flag)
      .value(1, 1)
      .threads(1, 1)
      .end();
  spinning->commit();
  while (spinning->status() < MTL::CommandBufferStatusScheduled) {
  }
  flag.reset();
  spinning->waitUntilCompleted();
  CHECK(spinning->status() == MTL::CommandBufferStatusError);
  auto pool = new_pool();
  CHECK_TEXT(
      std::string(spinning->error()->localizedDescription()->utf8String()),
      "flag",
      "freed");
}

// An error that would end the process ends the threadgroup.
void deaths(Gpu& gpu) {
  auto run = [&](const std::string& name, float value) {
    auto out = gpu.buffer(32);
    auto buffer = gpu.command_buffer();
    Encoder(buffer)
        .pipeline(gpu.pipeline(name))
        .bind(0, out)
        .value(1, value)
        .threads(32)
        .end();
    return finish(buffer);
  };
#if defined(__x86_64__)
  for (float divisor : {0, -1}) {
    CHECK_TEXT(
        run("divide", divisor),
        "divide, threadgroup (0, 0, 0), lane 5: integer division");
  }
#endif
  CHECK_TEXT(
      run("trapped", 1),
      "trapped, threadgroup (0, 0, 0), lane 5: the kernel reached code marked as");
  // ThreadSanitizer delivers signals from other threads when a thread waits.
#if !defined(__SANITIZE_THREAD__) && !__has_feature(thread_sanitizer)
  auto text = run("endless", 1);
  CHECK_TEXT(
      text,
      "endless, threadgroup (0, 0, 0), lane 5",
      "has run for 1 s without an end");
  CHECK_TEXT(
      run("astray", 1),
      "astray, threadgroup (0, 0, 0): in the code around the kernel",
      "no end after the time limit");
#endif
  // The engine cannot abandon what it does not run.
  CHECK(run("astray", 2) == "");
  CHECK_TEXT(
      run("astray", 0),
      "astray, threadgroup (0, 0, 0): in the code around the kernel",
      "signal 11 at address");
  CHECK(run("fill", 1) == "");
}

// A division of the program's own ends it as without the device, with a word.
// The sanitizers have handlers of their own.
void a_division_of_the_program() {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) &&               \
    !defined(__SANITIZE_ADDRESS__) && !__has_feature(thread_sanitizer) && \
    !__has_feature(address_sanitizer)
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    volatile int seven = 7, zero = 0;
    _exit(seven / zero);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  const auto size = read(ends[0], text.data(), text.size());
  close(ends[0]);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGFPE);
  CHECK(size > 0);
  CHECK_TEXT(text, "the program, not a kernel, divides an integer by zero");
#endif
}

volatile sig_atomic_t foreign_ticks = 0;

// A program's own timer may use the watchdog's signal.
void timers_of_others() {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGVTALRM;
  timer_t timer;
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  itimerspec once{};
  once.it_value.tv_nsec = 1'000'000;
  CHECK(timer_settime(timer, 0, &once, nullptr) == 0);
  while (foreign_ticks == 0) {
    usleep(1000);
  }
  CHECK(foreign_ticks == 1);
  timer_delete(timer);
}

// A library is loaded only if no other user can have written it, and if it is
// the requested kernel.
void libraries_that_are_not_loaded(Gpu& gpu) {
  auto pool = new_pool();
  auto reason = [&](const std::string& name) -> std::string {
    auto function = NS::TransferPtr(gpu.library->newFunction(string(name)));
    NS::Error* error = nullptr;
    CHECK(!gpu.device->newComputePipelineState(function.get(), &error));
    return error->localizedDescription()->utf8String();
  };
  CHECK_TEXT(
      reason("writable"),
      "kernel_writable.so is not loaded: other users can write it");
  CHECK_TEXT(reason("wrong"), "holds the kernel fill, expected wrong");
}

// After a fault, later commands and signals of its command buffer do not
// happen; the next command buffer runs.
void a_fault_ends_its_command_buffer(Gpu& gpu) {
  auto event = NS::TransferPtr(gpu.device->newSharedEvent());
  auto buffer = fill(gpu, "forget", gpu.buffer(100), 100);
  buffer->encodeSignalEvent(event.get(), 1);
  int seen = 0;
  buffer->addCompletedHandler([&](MTL::CommandBuffer* done) {
    CHECK(done->status() == MTL::CommandBufferStatusError);
    CHECK(done->error());
    seen++;
  });
  CHECK(finish(buffer) != "");
  CHECK(seen == 1);
  CHECK(event->signaledValue() == 0);
  CHECK(finish(fill(gpu, "fill", gpu.buffer(100), 100)) == "");
}

} // namespace

int main() {
  signal(SIGVTALRM, [](int) { foreign_ticks = foreign_ticks + 1; });
  Gpu gpu;
  unwritten_output(gpu);
  data_that_look_unwritten(gpu);
  data_behind_a_smaller_output(gpu);
  two_dispatches_write_one_output(gpu);
  allocator_rounding_is_no_output(gpu);
  memory_that_an_output_does_not_fill(gpu);
  an_output_that_is_read(gpu);
  the_least_allocation_is_no_output(gpu);
  out_of_bounds(gpu);
  wrong_arguments(gpu);
  switched_off_arguments(gpu);
  threadgroup_memory(gpu);
  use_after_free(gpu);
  deaths(gpu);
  a_division_of_the_program();
  CHECK(foreign_ticks == 0);
  timers_of_others();
  libraries_that_are_not_loaded(gpu);
  a_fault_ends_its_command_buffer(gpu);
}
