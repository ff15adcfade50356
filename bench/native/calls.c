/* Times one kind of driver call, over and over; prints the median nanoseconds of a call.
 *
 *   calls CASE BATCH ROUNDS [CPU...]      a thread for each CPU, pinned to it, all making the same calls
 *
 * What is timed in one go is a batch; between batches of launches the program waits for the card, as programs do. The median over batches leaves out what the rest of the machine does meanwhile. Before the first
 * batch it prints "ready" and waits for a line, so that several processes can be let go together.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096

typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream, *attributes;
  unsigned attribute_count;
} launch_config;

typedef int (*launch_function)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
typedef int (*cooperative_function)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **);
typedef int (*extended_function)(const launch_config *, void *, void **, void **);
typedef int (*graph_function)(void *, void *);

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuStreamCreate(void **, unsigned), cuMemAlloc_v2(uint64_t *, size_t), cuMemFree_v2(uint64_t), cuMemGetInfo_v2(size_t *, size_t *);
int cuModuleLoadData(void **, const void *) __attribute__((weak)), cuModuleGetFunction(void **, void *, const char *) __attribute__((weak));
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

static void *context, *kernel, *graph = (void *)0x5000;
static launch_function launch;
static cooperative_function cooperative;
static extended_function extended;
static graph_function launch_graph;
static __thread void *stream, *streams[4];
static uint64_t duration_ns;
static int batch, stream_count;
static void *params[] = {&duration_ns};

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void check(int result) {
  if (result) fprintf(stderr, "error %d\n", result), exit(1);
}

static void *resolve(const char *name, int per_thread) {
  void *found;
  check(cuGetProcAddress_v2(name, &found, 12090, per_thread ? 2 : 1, NULL));
  return found;
}

/* ---- the calls ---- */

static void call_linked(void) {
  for (int i = 0; i < batch; i++) check(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}
static void call_launch(void) {
  for (int i = 0; i < batch; i++) check(launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}
static void call_alternating(void) {
  for (int i = 0; i < batch; i++) check(launch(kernel, 1, 1, 1, 1, 1, 1, 0, streams[i & (stream_count - 1)], params, NULL));
}
static void call_and_wait(void) {
  for (int i = 0; i < batch; i++) check(launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL)), check(cuCtxSynchronize());
}
static void call_cooperative(void) {
  for (int i = 0; i < batch; i++) check(cooperative(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params));
}
static void call_extended(void) {
  launch_config config = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = stream};
  for (int i = 0; i < batch; i++) check(extended(&config, kernel, params, NULL));
}
static void call_graph(void) {
  for (int i = 0; i < batch; i++) check(launch_graph(graph, stream));
}
static void call_meminfo(void) {
  size_t available, total;
  for (int i = 0; i < batch; i++) check(cuMemGetInfo_v2(&available, &total));
}
static void call_dlsym(void) {
  static void *libc;
  if (!libc) libc = dlopen("libc.so.6", RTLD_LAZY);
  for (int i = 0; i < batch; i++) check(!dlsym(libc, "malloc"));
}

static void call_lookup(void) {
  for (int i = 0; i < batch; i++) resolve("cuLaunchKernel", 0);
}

static uint64_t live[10000];
static size_t live_count, at;

/* Every round replaces blocks spread over the live ones, so that a table which degrades with what it holds shows it. */
static void call_alloc(void) {
  for (int i = 0; i < batch; i++) {
    uint64_t fresh;
    check(cuMemAlloc_v2(&fresh, BLOCK));
    check(cuMemFree_v2(live[at]));
    live[at] = fresh;
    at = (at + 7919) % live_count; /* a prime: the order of addresses is not the order of age */
  }
}

static const struct {
  const char *name;
  void (*call)(void);
  int per_thread, own_streams;
  size_t live;
} cases[] = {
    {"launch.linked", call_linked, 0, 0, 0},        {"launch.gpa", call_launch, 0, 0, 0},
    {"launch.stream", call_launch, 0, 1, 0},        {"launch.ptsz", call_launch, 1, 0, 0},
    {"launch.ex", call_extended, 0, 0, 0},          {"launch.ex_ptsz", call_extended, 1, 0, 0},
    {"launch.cooperative", call_cooperative, 0, 0, 0}, {"launch.cooperative_ptsz", call_cooperative, 1, 0, 0},
    {"launch.graph", call_graph, 0, 0, 0},          {"launch.graph_ptsz", call_graph, 1, 0, 0},
    {"launch.2_streams", call_alternating, 0, 2, 0}, {"launch.4_streams", call_alternating, 0, 4, 0},
    {"launch.and_wait", call_and_wait, 0, 0, 0},
    {"alloc.1", call_alloc, 0, 0, 1},               {"alloc.10000", call_alloc, 0, 0, 10000},
    {"meminfo", call_meminfo, 0, 0, 0},             {"dlsym", call_dlsym, 0, 0, 0},
    {"lookup", call_lookup, 0, 0, 0},
};

/* ---- one run ---- */

static int chosen, rounds;
static pthread_barrier_t together;

static char *read_text(const char *path) {
  static char text[65536];
  FILE *file = fopen(path, "rb");
  if (!file) perror(path), exit(1);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  return text;
}

/* KERNEL names the source of a kernel where the driver wants a real one. */
static void start(void) {
  void *module;
  const char *source = getenv("KERNEL");
  check(cuInit(0));
  check(cuDevicePrimaryCtxRetain(&context, 0));
  check(cuCtxSetCurrent(context));
  kernel = (void *)0x4000;
  stream_count = cases[chosen].own_streams;
  if (source) check(cuModuleLoadData(&module, read_text(source))), check(cuModuleGetFunction(&kernel, module, "aliquot_spin"));
  launch = (launch_function)resolve("cuLaunchKernel", cases[chosen].per_thread);
  cooperative = (cooperative_function)resolve("cuLaunchCooperativeKernel", cases[chosen].per_thread);
  extended = (extended_function)resolve("cuLaunchKernelEx", cases[chosen].per_thread);
  launch_graph = (graph_function)resolve("cuGraphLaunch", cases[chosen].per_thread);
  for (live_count = 0; live_count < cases[chosen].live; live_count++) check(cuMemAlloc_v2(&live[live_count], BLOCK));
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* As long as PAUSE_US says: what a round left to be measured then is, as where a card takes its time. */
static void pause_us(void) {
  const char *pause = getenv("PAUSE_US");
  if (pause) usleep((useconds_t)atoi(pause));
}

static void *run(void *cpu) {
  double *times = calloc((size_t)rounds, sizeof *times), *median = malloc(sizeof *median);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((int)(intptr_t)cpu, &set);
  if (cpu != (void *)-1) sched_setaffinity(0, sizeof set, &set);
  check(cuCtxSetCurrent(context));
  for (int i = 0; i < cases[chosen].own_streams; i++) check(cuStreamCreate(&streams[i], 1));
  stream = streams[0];
  pthread_barrier_wait(&together);
  for (int round = -1; round < rounds; round++) {
    uint64_t began = now_ns();
    cases[chosen].call();
    if (round >= 0) times[round] = (double)(now_ns() - began) / batch; /* the first round warms up */
    if (!cases[chosen].live) check(cuCtxSynchronize());
    pause_us();
  }
  qsort(times, (size_t)rounds, sizeof *times, by_value);
  *median = times[rounds / 2];
  return median;
}

static int find_case(const char *name) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (!strcmp(cases[i].name, name)) return (int)i;
  fprintf(stderr, "no case %s\n", name), exit(1);
}

int main(int argc, char **argv) {
  if (argc < 4) return 1;
  int extra = argc > 5 ? argc - 5 : 0; /* threads besides this one */
  pthread_t threads[16];
  double worst;
  char line[8];
  chosen = find_case(argv[1]);
  batch = atoi(argv[2]), rounds = atoi(argv[3]);
  start();
  puts("ready"), fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) return 1;
  pthread_barrier_init(&together, NULL, (unsigned)extra + 1);
  for (int i = 0; i < extra; i++) pthread_create(&threads[i], NULL, run, (void *)(intptr_t)atoi(argv[5 + i]));
  worst = *(double *)run((void *)(intptr_t)(argc > 4 ? atoi(argv[4]) : -1));
  for (int i = 0; i < extra; i++) {
    void *median;
    pthread_join(threads[i], &median);
    if (*(double *)median > worst) worst = *(double *)median;
  }
  printf("%.2f\n", worst);
  return 0;
}
