// frame_pool: coroutine frames, kept by size in free lists of the thread that frees them. A frame of more
// than `pooled_bytes_max` comes from the heap. At thread exit the lists are returned to the heap.
#include <array>
#include <cstddef>
#include <new>

#include <loch/coro/task.h>

namespace loch::coro {
namespace {

constexpr std::size_t step_bytes = 64;
constexpr std::size_t pooled_bytes_max = 16384;

struct FreeFrame {
  FreeFrame* next;
};

// The lists need no construction, so that reaching them costs no check; who fills them first sees to their
// end.
thread_local constinit std::array<FreeFrame*, pooled_bytes_max / step_bytes> free_frames{};
thread_local constinit bool closed = false;

struct AtThreadExit {
  ~AtThreadExit() {
    closed = true;
    for (FreeFrame*& head : free_frames) {
      while (head != nullptr) {
        FreeFrame* next = head->next;
        ::operator delete(head);
        head = next;
      }
    }
  }
};

[[gnu::noinline]] void* allocate_new(std::size_t bytes) {
  static const thread_local AtThreadExit at_thread_exit;
  return ::operator new((bytes + step_bytes - 1) / step_bytes * step_bytes);
}

}  // namespace

void* allocate_frame(std::size_t bytes) {
  if (bytes > pooled_bytes_max) [[unlikely]]
    return ::operator new(bytes);
  FreeFrame*& head = free_frames[(bytes - 1) / step_bytes];
  FreeFrame* frame = head;
  if (frame == nullptr) [[unlikely]]
    return allocate_new(bytes);
  head = frame->next;
  return frame;
}

void free_frame(void* frame, std::size_t bytes) noexcept {
  if (bytes > pooled_bytes_max || closed) [[unlikely]] {
    ::operator delete(frame);
    return;
  }
  auto* freed = static_cast<FreeFrame*>(frame);
  FreeFrame*& head = free_frames[(bytes - 1) / step_bytes];
  freed->next = head;
  head = freed;
}

}  // namespace loch::coro
