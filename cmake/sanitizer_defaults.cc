// What the sanitizers of a test do unless ASAN_OPTIONS and the like say otherwise: stop at the first finding,
// with a trace. LOCH_SYMBOLIZER names the symbolizer, which is not always in the PATH.
#ifndef LOCH_SYMBOLIZER
#define LOCH_SYMBOLIZER ""
#endif

extern "C" {
const char* __asan_default_options();
const char* __ubsan_default_options();
const char* __tsan_default_options();

// A store maps gigabytes of shared memory; a core file would hold them all.
__attribute__((used)) const char* __asan_default_options() {
  return "detect_stack_use_after_return=1:strict_string_checks=1:disable_coredump=1" LOCH_SYMBOLIZER;
}
__attribute__((used)) const char* __ubsan_default_options() {
  return "print_stacktrace=1:halt_on_error=1" LOCH_SYMBOLIZER;
}
__attribute__((used)) const char* __tsan_default_options() {
  return "halt_on_error=1:second_deadlock_stack=1:history_size=4" LOCH_SYMBOLIZER;
}
}
