/* A tenant's program: keeps a card busy the way it is told, and sleeps, never spins, while it waits.
 *
 *   load KERNELS [KEY=VALUE...]       KERNELS: the directory of spin.ptx and the others
 *
 *   kernel_us=1000      lengths of kernels, in turn: kernel_us=100,20000
 *   apart=0             1: those of each length are a function of their own
 *   grid=64             blocks of a kernel
 *   what=kernel         or copies of a MiB instead: in, out, within, fill; and in_sync, out_sync, whose calls wait
 *   memory_mib=0        kernels use all of so much memory
 *   managed=0           1: which is managed memory
 *   cards=1             2: kernels that wait for one another on two cards, launched in either order at random
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
 * prints a line for each time it was awake: when it submitted first, when the last wait was over, and how often it launched.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
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
#define PORTABLE_AND_MAPPED 3
#define COPY_BYTES (1 << 20)
#define MAX_CARDS 2
#define ATTACH_GLOBAL 1

int cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxSetFlags_v2(int, unsigned), cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *), cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuStreamCreate(void **, unsigned), cuStreamSynchronize(void *);
int cuStreamBeginCapture_v2(void *, int), cuStreamEndCapture(void *, void **), cuGraphInstantiateWithFlags(void **, void *, uint64_t);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuGraphLaunch(void *, void *);
int cuMemAlloc_v2(uint64_t *, size_t), cuMemAllocManaged(uint64_t *, size_t, unsigned), cuMemHostAlloc(void **, size_t, unsigned);
int cuMemcpyHtoD_v2(uint64_t, const void *, size_t), cuMemcpyHtoDAsync_v2(uint64_t, const void *, size_t, void *);
int cuMemcpyDtoH_v2(void *, uint64_t, size_t), cuMemcpyDtoHAsync_v2(void *, uint64_t, size_t, void *);
int cuMemcpyDtoDAsync_v2(uint64_t, uint64_t, size_t, void *), cuMemsetD8Async(uint64_t, unsigned char, size_t, void *);

/* Everything a number is given for. */
static struct {
  uint64_t grid, sync, graph, idle_us, random, awake_ms, after_ms, for_ms, threads, cards, seed, memory_mib, managed, apart;
} options = {.grid = 64, .sync = 16, .for_ms = 1000, .threads = 1, .cards = 1, .seed = 1};

static const struct {
  const char *name;
  uint64_t *value;
} keys[] = {
    {"grid", &options.grid},         {"sync", &options.sync},         {"graph", &options.graph},   {"idle_us", &options.idle_us},
    {"random", &options.random},     {"awake_ms", &options.awake_ms}, {"after_ms", &options.after_ms}, {"for_ms", &options.for_ms},
    {"threads", &options.threads},   {"cards", &options.cards},       {"seed", &options.seed},
    {"memory_mib", &options.memory_mib}, {"managed", &options.managed},       {"apart", &options.apart},
};

typedef struct {
  uint64_t begin_ns, end_ns;
  size_t launches;
} period;

typedef struct {
  pthread_t thread;
  void *streams[MAX_CARDS], *graphs[MAX_LENGTHS];
  void *pinned, *pageable;
  uint64_t device, other, used;
  uint32_t round; /* of kernels that meet */
  unsigned short dice[3];
  size_t next, count;
  period periods[MAX_PERIODS];
} worker;

static void *contexts[MAX_CARDS], *kernels[MAX_CARDS];
static void *by_length[MAX_LENGTHS]; /* of the first card */
static char *words; /* through which kernels meet */
static int (*copy)(const worker *); /* NULL: kernels */
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

/* ---- copies ---- */

#define COPY(name, call) \
  static int name(const worker *self) { return call; }
COPY(in, cuMemcpyHtoDAsync_v2(self->device, self->pinned, COPY_BYTES, self->streams[0]))
COPY(in_sync, cuMemcpyHtoD_v2(self->device, self->pageable, COPY_BYTES))
COPY(out, cuMemcpyDtoHAsync_v2(self->pinned, self->device, COPY_BYTES, self->streams[0]))
COPY(out_sync, cuMemcpyDtoH_v2(self->pageable, self->device, COPY_BYTES))
COPY(within, cuMemcpyDtoDAsync_v2(self->device, self->other, COPY_BYTES, self->streams[0]))
COPY(fill, cuMemsetD8Async(self->device, 7, COPY_BYTES, self->streams[0]))

static const struct {
  const char *name;
  int (*copy)(const worker *);
} copies[] = {{"kernel", NULL}, {"in", in}, {"in_sync", in_sync}, {"out", out}, {"out_sync", out_sync}, {"within", within}, {"fill", fill}};

/* ---- what to do ---- */

static void parse_what(const char *name) {
  size_t i = 0;
  while (i < sizeof copies / sizeof *copies && strcmp(name, copies[i].name)) i++;
  if (i == sizeof copies / sizeof *copies) fail(name, EINVAL);
  copy = copies[i].copy;
}

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
  if (!strcmp(argument, "what")) return parse_what(value);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!strcmp(argument, keys[i].name)) return (void)(*keys[i].value = strtoull(value, NULL, 10));
  fail(argument, EINVAL);
}

static char *read_text(const char *directory, const char *name) {
  static char text[65536], path[4096];
  snprintf(path, sizeof path, "%s/%s.ptx", directory, name);
  FILE *file = fopen(path, "rb");
  if (!file) fail(path, errno);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  return text;
}

/* ---- the cards ---- */

static void start(const char *directory, int card) {
  const char *name = options.cards > 1 ? "meet" : options.memory_mib ? "use" : "spin";
  char entry[16];
  void *module;
  const char *text = read_text(directory, name);
  snprintf(entry, sizeof entry, "aliquot_%s", name);
  CHECK(cuDevicePrimaryCtxSetFlags_v2(card, BLOCKING_SYNC));
  CHECK(cuDevicePrimaryCtxRetain(&contexts[card], card));
  CHECK(cuCtxSetCurrent(contexts[card]));
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&kernels[card], module, entry));
  for (size_t i = 0; i < length_count; i++) by_length[i] = kernels[card];
  for (size_t i = 1; options.apart && i < length_count; i++) {
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&by_length[i], module, entry));
  }
}

static void start_all(const char *directory) {
  CHECK(cuInit(0));
  for (int card = (int)options.cards; card--;) start(directory, card);
  CHECK(cuMemHostAlloc((void **)&words, 4096, PORTABLE_AND_MAPPED));
}

static void launch_kernel(const worker *self, size_t which) {
  uint64_t used = self->used, bytes = options.memory_mib << 20;
  void *params[] = {&lengths_ns[which], &used, &bytes}; /* those of aliquot_spin are the first */
  CHECK(cuLaunchKernel(by_length[which], (unsigned)options.grid, 1, 1, 256, 1, 1, 0, self->streams[0], params, NULL));
}

/* One of two kernels, each of which runs on when the other has come. */
static void launch_half(worker *self, size_t which, int card) {
  uint64_t here = (uint64_t)(words + 64 * card), there = (uint64_t)(words + 64 * !card);
  void *params[] = {&lengths_ns[which], &here, &there, &self->round};
  CHECK(cuCtxSetCurrent(contexts[card]));
  CHECK(cuLaunchKernel(kernels[card], (unsigned)options.grid, 1, 1, 256, 1, 1, 0, self->streams[card], params, NULL));
}

static void launch_meeting(worker *self, size_t which) {
  int first = nrand48(self->dice) & 1;
  self->round++;
  launch_half(self, which, first);
  launch_half(self, which, !first);
}

static void *capture(const worker *self, size_t which) {
  void *graph, *executable;
  CHECK(cuStreamBeginCapture_v2(self->streams[0], CAPTURE_THREAD_LOCAL));
  for (uint64_t i = 0; i < options.graph; i++) launch_kernel(self, which);
  CHECK(cuStreamEndCapture(self->streams[0], &graph));
  CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0));
  return executable;
}

static void prepare(worker *self) {
  for (int card = (int)options.cards; card--;) {
    CHECK(cuCtxSetCurrent(contexts[card]));
    CHECK(cuStreamCreate(&self->streams[card], NON_BLOCKING));
  }
  if (options.memory_mib && options.managed) CHECK(cuMemAllocManaged(&self->used, options.memory_mib << 20, ATTACH_GLOBAL));
  else if (options.memory_mib) CHECK(cuMemAlloc_v2(&self->used, options.memory_mib << 20));
  for (size_t i = 0; options.graph && i < length_count; i++) self->graphs[i] = capture(self, i);
  if (!copy) return;
  CHECK(cuMemAlloc_v2(&self->device, COPY_BYTES));
  CHECK(cuMemAlloc_v2(&self->other, COPY_BYTES));
  CHECK(cuMemHostAlloc(&self->pinned, COPY_BYTES, PORTABLE_AND_MAPPED));
  if (!(self->pageable = malloc(COPY_BYTES))) fail("malloc", ENOMEM);
}

static void launch(worker *self) {
  size_t which = self->next++ % length_count;
  if (copy)
    CHECK(copy(self));
  else if (options.graph)
    CHECK(cuGraphLaunch(self->graphs[which], self->streams[0]));
  else if (options.cards > 1)
    launch_meeting(self, which);
  else
    launch_kernel(self, which);
}

static void wait_for_all(const worker *self) {
  for (uint64_t card = 0; card < options.cards; card++) CHECK(cuStreamSynchronize(self->streams[card]));
}

/* ---- a life of work and pauses ---- */

/* Until it is time for a pause. */
static void work(worker *self, uint64_t until_ns) {
  uint64_t began = now_ns();
  size_t first = self->next;
  do {
    for (uint64_t i = 0; i < options.sync; i++) launch(self);
    wait_for_all(self);
  } while (now_ns() < until_ns && (!options.idle_us || now_ns() < began + options.awake_ms * 1000000));
  if (self->count < MAX_PERIODS) self->periods[self->count++] = (period){began, now_ns(), self->next - first};
}

static uint64_t pause_ns(worker *self) {
  double mean = (double)options.idle_us * 1000;
  return (uint64_t)(options.random ? -mean * log(1 - erand48(self->dice)) : mean);
}

static void *live(void *argument) {
  worker *self = argument;
  uint64_t until = begin_ns + options.for_ms * 1000000;
  CHECK(cuCtxSetCurrent(contexts[0]));
  sleep_until(begin_ns + options.after_ms * 1000000);
  while (now_ns() < until) {
    work(self, until);
    if (options.idle_us) sleep_until(now_ns() + pause_ns(self));
  }
  return NULL;
}

static void print(const period *one) { printf("%lu %lu %zu\n", one->begin_ns, one->end_ns, one->launches); }

int main(int argc, char **argv) {
  static worker workers[MAX_THREADS];
  if (argc < 2) fail("usage: load KERNELS [KEY=VALUE...]", EINVAL);
  for (int i = 2; i < argc; i++) parse(argv[i]);
  if (options.threads > MAX_THREADS || !options.sync) fail("threads or sync", EINVAL);
  if (!options.cards || options.cards > MAX_CARDS || (options.cards > 1 && options.threads > 1)) fail("cards", EINVAL);
  start_all(argv[1]);
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
    for (size_t k = 0; k < workers[i].count; k++) print(&workers[i].periods[k]);
  return 0;
}
