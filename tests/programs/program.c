/* The common part of the programs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define MAX_KERNELS 64
#define PORTABLE_AND_MAPPED 3

static const char *directory;
static char **options;
static void *context;
static uint64_t begin_ns;
static _Atomic uint64_t launched_ns;
static kernel kernels[MAX_KERNELS];
static size_t kernel_count;

void fail(const char *what, int result) {
  fprintf(stderr, "%s: %d\n", what, result);
  exit(1);
}

/* ---- options ---- */

const char *text_option(const char *key, const char *otherwise) {
  size_t length = strlen(key);
  for (char **one = options; *one; one++)
    if (!strncmp(*one, key, length) && (*one)[length] == '=') return *one + length + 1;
  return otherwise;
}

uint64_t option(const char *key, uint64_t otherwise) {
  const char *value = text_option(key, NULL);
  return value ? strtoull(value, NULL, 10) : otherwise;
}

/* ---- the card ---- */

void start(int argc, char **argv) {
  if (argc < 2) fail("usage: PROGRAM KERNELS [KEY=VALUE...]", EINVAL);
  directory = argv[1], options = argv + 2;
  prctl(PR_SET_TIMERSLACK, 1UL); /* pauses are short */
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  join_context();
}

void join_context(void) { CHECK(cuCtxSetCurrent(context)); }

static void *load(const char *name) {
  static char text[65536], path[4096];
  char entry[32];
  void *module, *function;
  snprintf(path, sizeof path, "%s/%s.ptx", directory, name);
  snprintf(entry, sizeof entry, "aliquot_%s", name);
  FILE *file = fopen(path, "rb");
  if (!file) fail(path, errno);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&function, module, entry));
  return function;
}

kernel kernel_of(uint64_t us) {
  size_t i = 0;
  while (i < kernel_count && kernels[i].ns != us * 1000) i++;
  if (i == MAX_KERNELS) fail("too many kernels", MAX_KERNELS);
  if (i == kernel_count) kernels[kernel_count++] = (kernel){load("spin"), us * 1000};
  return kernels[i];
}

static void launch_with(kernel which, void **params, stream where) {
  CHECK(cuLaunchKernel(which.function, 64, 1, 1, 256, 1, 1, 0, where, params, NULL));
  atomic_fetch_add_explicit(&launched_ns, which.ns, memory_order_relaxed);
}

void launch(kernel which, stream where) {
  launch_with(which, (void *[]){&which.ns}, where);
}

kernel meeting_of(uint64_t us) { return (kernel){load("meet"), us * 1000}; }

void launch_meeting(kernel which, const volatile uint32_t *arrive, const volatile uint32_t *await, uint32_t value, stream where) {
  launch_with(which, (void *[]){&which.ns, &arrive, &await, &value}, where);
}

kernel using_of(uint64_t us) { return (kernel){load("use"), us * 1000}; }

void launch_using(kernel which, uint64_t memory, size_t bytes, stream where) {
  launch_with(which, (void *[]){&which.ns, &memory, &bytes}, where);
}

stream new_stream(void) {
  stream made;
  CHECK(cuStreamCreate(&made, NON_BLOCKING));
  return made;
}

event new_event(unsigned flags) {
  event made;
  CHECK(cuEventCreate(&made, flags));
  return made;
}

uint32_t *shared_words(void) {
  void *words;
  CHECK(cuMemHostAlloc(&words, 4096, PORTABLE_AND_MAPPED));
  memset(words, 0, 4096);
  return words;
}

/* ---- time ---- */

uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void sleep_until(uint64_t when_ns) {
  struct timespec when = {(time_t)(when_ns / 1000000000), (long)(when_ns % 1000000000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR) continue;
}

void nap(void *milliseconds) { sleep_until(now_ns() + *(uint64_t *)milliseconds * 1000000); }

void wait_to_begin(void) {
  puts("ready"), fflush(stdout);
  if (scanf("%" SCNu64, &begin_ns) != 1) exit(1);
  launched_ns = 0;
  sleep_until(begin_ns);
}

void tell(const char *name, double value) { printf("%s %.17g\n", name, value); }

void finish(void) {
  printf("begin_ns %" PRIu64 "\nend_ns %" PRIu64 "\nlaunched_ns %" PRIu64 "\n\n", begin_ns, now_ns(), launched_ns);
  fflush(stdout);
  while (getchar() != EOF) continue;
}
