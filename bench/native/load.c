/* A tenant's program: keeps a card busy the way it is told, and sleeps, never spins, while it waits.
 *
 *   load PTX [KEY=VALUE...]
 *
 *   kernel_us=1000      lengths of kernels, in turn: kernel_us=100,20000
 *   grid=64             blocks of a kernel
 *   sync=16             launches between two waits
 *   graph=0             kernels in a captured graph that is launched instead of one kernel
 *   idle_us=0           pause after a wait
 *   random=0            1: pauses are random, exponentially distributed with that mean
 *   awake_ms=0          a pause comes only when so much time has passed since the last one
 *   after_ms=0          pause before the first launch
 *   for_ms=1000         no more launches after so much time
 *   threads=1           each with a stream of its own, all doing the same
 *   seed=1              of random pauses
 *
 * It prints "ready" and waits for a line with the instant of CLOCK_MONOTONIC, in nanoseconds, at which to begin. At its end it
 * prints a line for each time it was awake: when it submitted first, and when the last wait was over.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_LENGTHS 16
#define MAX_THREADS 16
#define MAX_PERIODS (1 << 17)
#define BLOCKING_SYNC 4
#define NON_BLOCKING 1
#define CAPTURE_THREAD_LOCAL 1

int cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxSetFlags_v2(int, unsigned), cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *), cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuStreamCreate(void **, unsigned), cuStreamSynchronize(void *);
int cuStreamBeginCapture_v2(void *, int), cuStreamEndCapture(void *, void **), cuGraphInstantiateWithFlags(void **, void *, uint64_t);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuGraphLaunch(void *, void *);

/* Everything a number is given for. */
static struct {
  uint64_t grid, sync, graph, idle_us, random, awake_ms, after_ms, for_ms, threads, seed;
} options = {.grid = 64, .sync = 16, .for_ms = 1000, .threads = 1, .seed = 1};

static const struct {
  const char *name;
  uint64_t *value;
} keys[] = {
    {"grid", &options.grid},         {"sync", &options.sync},         {"graph", &options.graph},   {"idle_us", &options.idle_us},
    {"random", &options.random},     {"awake_ms", &options.awake_ms}, {"after_ms", &options.after_ms}, {"for_ms", &options.for_ms},
    {"threads", &options.threads},   {"seed", &options.seed},
};

typedef struct {
  uint64_t begin_ns, end_ns;
} period;

typedef struct {
  pthread_t thread;
  void *stream, *graphs[MAX_LENGTHS];
  unsigned short dice[3];
  size_t next, count;
  period periods[MAX_PERIODS];
} worker;

static void *context, *kernel;
static uint64_t lengths_ns[MAX_LENGTHS] = {1000000};
static size_t length_count = 1;
static uint64_t begin_ns;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t when_ns) {
  struct timespec when = {(time_t)(when_ns / 1000000000), (long)(when_ns % 1000000000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR) continue;
}

static void fail(const char *what, int result) {
  fprintf(stderr, "load: %s: %d\n", what, result);
  exit(1);
}

#define CHECK(call)                                   \
  do {                                                \
    int result_ = (call);                             \
    if (result_) fail(#call, result_);                \
  } while (0)

/* ---- what to do ---- */

static void parse_lengths(char *list) {
  length_count = 0;
  for (char *one = strtok(list, ","); one; one = strtok(NULL, ",")) {
    if (length_count == MAX_LENGTHS) fail("too many lengths", MAX_LENGTHS);
    lengths_ns[length_count++] = strtoull(one, NULL, 10) * 1000;
  }
}

static void parse(char *argument) {
  char *value = strchr(argument, '=');
  if (!value) fail(argument, EINVAL);
  *value++ = '\0';
  if (!strcmp(argument, "kernel_us")) return parse_lengths(value);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!strcmp(argument, keys[i].name)) return (void)(*keys[i].value = strtoull(value, NULL, 10));
  fail(argument, EINVAL);
}

static char *read_text(const char *path) {
  static char text[65536];
  FILE *file = fopen(path, "rb");
  if (!file) fail(path, errno);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  return text;
}

/* ---- the card ---- */

static void start(const char *ptx) {
  int device;
  void *module;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxSetFlags_v2(device, BLOCKING_SYNC));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, read_text(ptx)));
  CHECK(cuModuleGetFunction(&kernel, module, "aliquot_spin"));
}

static void launch_kernel(const worker *self, size_t which) {
  void *params[] = {&lengths_ns[which]};
  CHECK(cuLaunchKernel(kernel, (unsigned)options.grid, 1, 1, 256, 1, 1, 0, self->stream, params, NULL));
}

static void *capture(const worker *self, size_t which) {
  void *graph, *executable;
  CHECK(cuStreamBeginCapture_v2(self->stream, CAPTURE_THREAD_LOCAL));
  for (uint64_t i = 0; i < options.graph; i++) launch_kernel(self, which);
  CHECK(cuStreamEndCapture(self->stream, &graph));
  CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0));
  return executable;
}

static void prepare(worker *self) {
  CHECK(cuStreamCreate(&self->stream, NON_BLOCKING));
  for (size_t i = 0; options.graph && i < length_count; i++) self->graphs[i] = capture(self, i);
}

static void launch(worker *self) {
  size_t which = self->next++ % length_count;
  if (options.graph)
    CHECK(cuGraphLaunch(self->graphs[which], self->stream));
  else
    launch_kernel(self, which);
}

/* ---- a life of work and pauses ---- */

/* Until it is time for a pause. */
static void work(worker *self, uint64_t until_ns) {
  uint64_t began = now_ns();
  do {
    for (uint64_t i = 0; i < options.sync; i++) launch(self);
    CHECK(cuStreamSynchronize(self->stream));
  } while (now_ns() < until_ns && (!options.idle_us || now_ns() < began + options.awake_ms * 1000000));
  if (self->count < MAX_PERIODS) self->periods[self->count++] = (period){began, now_ns()};
}

static uint64_t pause_ns(worker *self) {
  double mean = (double)options.idle_us * 1000;
  return (uint64_t)(options.random ? -mean * log(1 - erand48(self->dice)) : mean);
}

static void *live(void *argument) {
  worker *self = argument;
  uint64_t until = begin_ns + options.for_ms * 1000000;
  CHECK(cuCtxSetCurrent(context));
  sleep_until(begin_ns + options.after_ms * 1000000);
  while (now_ns() < until) {
    work(self, until);
    if (options.idle_us) sleep_until(now_ns() + pause_ns(self));
  }
  return NULL;
}

int main(int argc, char **argv) {
  static worker workers[MAX_THREADS];
  if (argc < 2) fail("usage: load PTX [KEY=VALUE...]", EINVAL);
  for (int i = 2; i < argc; i++) parse(argv[i]);
  if (options.threads > MAX_THREADS || !options.sync) fail("threads or sync", EINVAL);
  start(argv[1]);
  for (size_t i = 0; i < options.threads; i++) {
    workers[i].dice[0] = (unsigned short)(options.seed + i);
    prepare(&workers[i]);
  }
  puts("ready"), fflush(stdout);
  if (scanf("%lu", &begin_ns) != 1) return 1;
  for (size_t i = 1; i < options.threads; i++) pthread_create(&workers[i].thread, NULL, live, &workers[i]);
  live(&workers[0]);
  for (size_t i = 1; i < options.threads; i++) pthread_join(workers[i].thread, NULL);
  for (size_t i = 0; i < options.threads; i++)
    for (size_t k = 0; k < workers[i].count; k++) printf("%lu %lu\n", workers[i].periods[k].begin_ns, workers[i].periods[k].end_ns);
  return 0;
}
