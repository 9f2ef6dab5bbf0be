// Reference counts and autorelease pools.
#include <atomic>
#include <thread>

#include "harness.h"

namespace {

std::atomic<int> alive{0};

class Counted final : public NS::Referencing<Counted> {
 public:
  Counted() {
    alive++;
  }
  ~Counted() override {
    alive--;
  }
};

void references_keep_an_object() {
  auto* object = new Counted;
  CHECK(object->retainCount() == 1);
  CHECK(object->retain() == object);
  CHECK(object->retainCount() == 2);
  object->release();
  CHECK(alive == 1);
  object->release();
  CHECK(alive == 0);
}

void a_pool_releases_when_it_is_drained() {
  auto outer = new_pool();
  (new Counted)->autorelease();
  {
    auto inner = new_pool();
    (new Counted)->autorelease();
    (new Counted)->autorelease();
    CHECK(alive == 3);
  }
  CHECK(alive == 1);
  outer.reset();
  CHECK(alive == 0);
}

// Draining the outer pool also releases the objects of an inner one.
void pools_nest() {
  auto* outer = NS::AutoreleasePool::alloc()->init();
  auto* inner = NS::AutoreleasePool::alloc()->init();
  (new Counted)->autorelease();
  outer->release();
  CHECK(alive == 0);
  inner->release();
}

void shared_pointers_count() {
  auto shared = NS::TransferPtr(new Counted);
  {
    auto copy = shared;
    CHECK(shared->retainCount() == 2);
    NS::SharedPtr<Counted> moved = std::move(copy);
    CHECK(shared->retainCount() == 2);
    CHECK(!copy);
    NS::SharedPtr<NS::Object> base = shared;
    CHECK(shared->retainCount() == 3);
    moved = shared;
    CHECK(shared->retainCount() == 3);
  }
  CHECK(shared->retainCount() == 1);
  auto* given_up = shared.detach();
  CHECK(!shared && alive == 1);
  given_up->release();
  CHECK(alive == 0);
}

// MLX's encoders drain pools in the destructors of thread_local objects.
struct UsesPoolAtExit {
  ~UsesPoolAtExit() {
    auto pool = new_pool();
    (new Counted)->autorelease();
  }
};

void without_a_pool_the_thread_releases() {
  std::thread([] {
    thread_local UsesPoolAtExit at_exit;
    (void)at_exit;
    (new Counted)->autorelease();
    CHECK(alive == 1);
  }).join();
  CHECK(alive == 0);
}

void arrays_retain_what_they_hold() {
  auto* object = new Counted;
  {
    auto pool = new_pool();
    NS::Object* objects[] = {object};
    auto* array = NS::Array::array(objects, 1);
    CHECK(array->count() == 1 && array->object(0) == object);
    CHECK(object->retainCount() == 2);
  }
  CHECK(object->retainCount() == 1);
  object->release();
}

// As in Objective-C. MLX asks the buffer of an empty array for its length.
__attribute__((no_sanitize("null"))) void nil_answers_nothing() {
  // Volatile, so that the compiler does not see that it is null.
  MTL::Buffer* volatile nil = nullptr;
  CHECK(nil->length() == 0);
  CHECK(nil->contents() == nullptr);
}

} // namespace

int main() {
  references_keep_an_object();
  a_pool_releases_when_it_is_drained();
  pools_nest();
  shared_pointers_count();
  without_a_pool_the_thread_releases();
  arrays_retain_what_they_hold();
  nil_answers_nothing();
}
